"""Methods about schedules (JOB-014): create, list, get, pause, resume, delete. They are their caller's alone."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast.api.node_access import OWNERS, READERS, REQUESTERS, NodeAccess, Principal, RpcCall, RpcMethod, why_not_own
from holdfast.api.rpc.admission import checked_enqueue
from holdfast.api.rpc.job_inputs import with_inline_input
from holdfast.api.rpc.paging import why_not_limit
from holdfast.api.rpc.privileged import CommandResult, command_result, submit_for
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, EventNo, KeyId, Tier
from holdfast.core.schedule import messages
from holdfast.core.schedule.model import SCHEDULE_ID_BYTES, Firing, Schedule, ScheduleId, ScheduleState
from holdfast.engine.lookups.schedules import GetSchedule, GetScheduleByName, ListSchedules

_ID: Final = re.compile(rf"[0-9a-f]{{{2 * SCHEDULE_ID_BYTES}}}")


class CreateScheduleParams(msgspec.Struct, frozen=True):
    """A job that is enqueued again and again; one of `cron` and `interval_ms` says when."""

    name: str
    """One of its own among those of its caller; the same name with the same terms is a repeat."""
    payload: dict[str, Any]
    max_fee: int
    """Of each job; reserved when it is enqueued."""
    cron: str = ""
    """Five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    interval_ms: int = 0
    offset_min: int = 0
    """The zone of `cron`, in minutes east of UTC."""
    runs: int | None = None
    """It ends after this many jobs."""
    until_ms: int | None = None
    """It does not fire later."""
    input: str | None = None
    """JOB-003: bytes of the input of its jobs as base64, at most 64 KiB; larger ones are uploaded before."""
    caller: AccountId | None = None
    """The account whose jobs they are, where an operator creates it on its behalf."""


class ScheduleParams(msgspec.Struct, frozen=True):
    """Which schedule: its id, or its name and the caller, which is the key's own account where it is not given."""

    schedule: str
    caller: AccountId | None = None


class PauseScheduleParams(msgspec.Struct, frozen=True):
    """Which schedule, and why."""

    schedule: str
    caller: AccountId | None = None
    reason: str = ""


class ListSchedulesParams(msgspec.Struct, frozen=True):
    """A page of schedules by their creation; `cursor` is the last page's."""

    caller: AccountId | None = None
    state: ScheduleState | None = None
    limit: int = 100
    cursor: int = 0
    newest_first: bool = False


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as it is now, with its last firings."""

    id: ScheduleId
    name: str
    caller: AccountId
    state: ScheduleState
    reason: str
    """Why it is paused, or has ended."""
    cron: str
    interval_ms: int
    offset_min: int
    next_ms: int | None
    """When it fires next; None where it is paused or has ended."""
    max_fee: int
    tier: Tier
    key: KeyId
    """The API key that created it; `local` for a program on the node's machine."""
    payload: Any
    runs_left: int | None
    until_ms: int | None
    created_ms: int
    fired: int
    """Jobs that it has enqueued."""
    refused: int
    """Firings whose job was refused."""
    refusals_in_row: int
    firings: list[Firing]
    """The last ones, the newest at the end: the job, or why it was refused."""
    event: EventNo
    """Of its creation; lists use it as cursor."""


class ScheduleList(msgspec.Struct, frozen=True):
    """Some schedules, as of an event, and where the next page begins."""

    schedules: list[ScheduleView]
    as_of: EventNo
    next_cursor: int | None


class ScheduleReceipt(msgspec.Struct, frozen=True):
    """The schedule is durable; for a repeat, as it is now."""

    schedule: ScheduleView
    event: EventNo
    is_repeat: bool


def _view(schedule: Schedule) -> ScheduleView:
    shown = {name: getattr(schedule, name) for name in ScheduleView.__struct_fields__}
    is_active = schedule.state is ScheduleState.ACTIVE
    payload = decode_canonical(schedule.payload)
    return ScheduleView(**shown | {"payload": payload, "next_ms": schedule.next_ms if is_active else None})


async def _create(access: NodeAccess, call: RpcCall, params: CreateScheduleParams) -> ScheduleReceipt | Refused:
    command = await _create_command(access, call.principal, params)
    if isinstance(command, Refused):
        return command
    outcome = await submit_for(access, call, command)
    if isinstance(outcome, Refused):
        return outcome
    schedule = await access.source.query_durable(GetScheduleByName(command.caller, command.name))
    if schedule is None:
        return Refused("JOB-014", f"schedule {command.name!r} was removed since", name="NotFound")
    return ScheduleReceipt(_view(schedule), outcome.event, outcome.is_repeat)


async def _create_command(
    access: NodeAccess, principal: Principal, params: CreateScheduleParams
) -> messages.CreateSchedule | Refused:
    """Its jobs are checked as every job is (JOB-003), before there is one."""
    caller = params.caller or principal.account
    if caller is None:
        return Refused("JOB-014", "params: caller: missing", name="InvalidParams")
    with_input = with_inline_input(params.payload, params.input)
    if refusal := why_not_own(principal, caller) or (with_input if isinstance(with_input, Refused) else None):
        return refusal
    assert not isinstance(with_input, Refused)
    payload, raw_input = with_input
    terms = (caller, principal.tier, payload, params.max_fee, 0)
    job = await checked_enqueue(
        access.input_checker, access.source.policy, *terms, inputs=access.inputs, raw_input=raw_input
    )
    if isinstance(job, Refused):
        return job
    return messages.CreateSchedule(
        caller=caller,
        name=params.name,
        tier=principal.tier,
        payload=job.payload,
        max_fee=params.max_fee,
        cron=params.cron,
        interval_ms=params.interval_ms,
        offset_min=params.offset_min,
        runs=params.runs,
        until_ms=params.until_ms,
        key=KeyId(principal.name),
        input_digest=job.input_digest,
    )


async def _find(
    access: NodeAccess, principal: Principal, params: ScheduleParams | PauseScheduleParams
) -> Schedule | Refused:
    """By id or by name. To a key that may not read it a schedule does not exist (JOB-010)."""
    caller, found = params.caller or principal.account, None
    if _ID.fullmatch(params.schedule):
        found = await access.source.query_durable(GetSchedule(ScheduleId(bytes.fromhex(params.schedule))))
    if found is None and caller is not None:
        found = await access.source.query_durable(GetScheduleByName(caller, params.schedule))
    if found is None or not (principal.role in READERS or principal.account == found.caller):
        hint = "`holdfast job schedule list` shows them; an operator names the caller, too"
        return Refused("JOB-014", f"no schedule {params.schedule!r:.80}", hint, "NotFound")
    return found


async def _get(access: NodeAccess, call: RpcCall, params: ScheduleParams) -> ScheduleView | Refused:
    schedule = await _find(access, call.principal, params)
    return schedule if isinstance(schedule, Refused) else _view(schedule)


async def _list(access: NodeAccess, call: RpcCall, params: ListSchedulesParams) -> ScheduleList | Refused:
    """A requester lists its own; operators and auditors all, or those of one caller."""
    caller = params.caller or (None if call.principal.role in READERS else call.principal.account)
    if refusal := why_not_limit(params.limit) or (None if caller is None else why_not_own(call.principal, caller)):
        return refusal
    query = ListSchedules(caller, params.state, params.cursor, params.limit, params.newest_first)
    page = await access.source.query_durable(query)
    return ScheduleList([_view(schedule) for schedule in page.schedules], page.as_of, page.next_cursor)


async def _pause(access: NodeAccess, call: RpcCall, params: PauseScheduleParams) -> CommandResult | Refused:
    schedule = await _find(access, call.principal, params)
    if isinstance(schedule, Refused):
        return schedule
    return await _submit(access, call, messages.PauseSchedule(schedule.id, call.principal.account, params.reason))


async def _resume(access: NodeAccess, call: RpcCall, params: ScheduleParams) -> CommandResult | Refused:
    schedule = await _find(access, call.principal, params)
    if isinstance(schedule, Refused):
        return schedule
    return await _submit(access, call, messages.ResumeSchedule(schedule.id, call.principal.account))


async def _delete(access: NodeAccess, call: RpcCall, params: ScheduleParams) -> CommandResult | Refused:
    schedule = await _find(access, call.principal, params)
    if isinstance(schedule, Refused):
        return schedule
    return await _submit(access, call, messages.RemoveSchedule(schedule.id, call.principal.account))


async def _submit(access: NodeAccess, call: RpcCall, command: Command) -> CommandResult | Refused:
    return command_result(await submit_for(access, call, command))


METHODS: Final[dict[str, RpcMethod]] = {
    "cap.createSchedule": RpcMethod(
        "Enqueue a job again and again, by a cron expression or at an interval.",
        CreateScheduleParams,
        ScheduleReceipt,
        _create,
        REQUESTERS,
        is_write=True,
    ),
    "cap.listSchedules": RpcMethod("Schedules by their creation.", ListSchedulesParams, ScheduleList, _list, OWNERS),
    "cap.getSchedule": RpcMethod(
        "One schedule as it is now, with its last firings.", ScheduleParams, ScheduleView, _get, OWNERS
    ),
    "cap.pauseSchedule": RpcMethod(
        "Fire no more until it is resumed.", PauseScheduleParams, CommandResult, _pause, REQUESTERS, is_write=True
    ),
    "cap.resumeSchedule": RpcMethod(
        "Fire again, from the next time on.", ScheduleParams, CommandResult, _resume, REQUESTERS, is_write=True
    ),
    "cap.deleteSchedule": RpcMethod(
        "Delete a schedule; its jobs go on.", ScheduleParams, CommandResult, _delete, REQUESTERS, is_write=True
    ),
}
