"""Methods about the queue: its status, pausing kinds of jobs, and requeueing jobs that failed too often."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import OPERATORS, OWNERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.methods.jobs import JobParams
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import CommandResult, command_result, privileged_handler, submit_privileged
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import EventNo, Kind
from holdfast.core.key.model import Role
from holdfast.core.queue.pauses import Paused, PauseKind, ResumeKind
from holdfast.core.queue.requeue import Requeue
from holdfast.engine import queries
from holdfast.engine.queries.jobs import GetQueueStatus


class PauseParams(msgspec.Struct, frozen=True):
    """The kind of jobs that is not leased any more, and why."""

    kind: Kind
    reason: str = ""


class ResumeParams(msgspec.Struct, frozen=True):
    """The kind of jobs that is leased again."""

    kind: Kind


class QueueView(msgspec.Struct, frozen=True):
    """The queue as it is now."""

    depth: int
    """Jobs that wait or are leased."""
    leases: int
    by_kind: dict[str, int]
    """Live leases, by kind of job."""
    paused: dict[str, Paused]
    waiting: dict[str, int] = {}
    """Jobs that wait, by kind."""
    oldest_ms: dict[str, int] = {}
    """When the oldest ready job of a kind was admitted."""
    retrying: int = 0
    """Jobs that wait for a retry."""
    as_of: EventNo = EventNo(0)
    time_ms: int = 0


class ListFailedJobsParams(msgspec.Struct, frozen=True):
    """A page of jobs that failed too often, in the order of their admission; `cursor` is the last page's."""

    caller: str | None = None
    kind: Kind | None = None
    limit: int = 100
    cursor: int = 0
    newest_first: bool = False
    """From the newest one down."""


async def _get_status(access: NodeAccess, _: RpcCall, __: NoParams) -> QueueView:
    status = await access.source.query_durable(GetQueueStatus())
    return QueueView(
        depth=status.depth,
        leases=status.leases,
        by_kind=status.leases_by_kind,
        paused=status.paused,
        waiting=status.waiting,
        oldest_ms=status.oldest_ms,
        retrying=status.retrying,
        as_of=status.as_of,
        time_ms=access.source.replication_status().tip.time_ms,
    )


async def _list_dead_letters(access: NodeAccess, call: RpcCall, params: ListFailedJobsParams) -> queries.Page | Refused:
    """RTY-001: operators and auditors see all, a requester sees its own."""
    if refusal := why_not_limit(params.limit):
        return refusal
    caller = call.principal.account if call.principal.role is Role.REQUESTER else params.caller
    match = filter_of({"caller": caller, "kind": params.kind})
    return await queries.page(
        access.source, "failed_job", match, params.cursor, params.limit, is_newest_first=params.newest_first
    )


async def _requeue(access: NodeAccess, call: RpcCall, params: JobParams) -> CommandResult | Refused:
    """RTY-001: the command carries the job from the tables, since memory may have purged it."""
    job = await queries.job(access.source, params.task_id)
    replicas = await queries.replicas(access.source, job) if job is not None else []
    return command_result(await submit_privileged(access, call, Requeue(params.task_id, job, tuple(replicas))))


METHODS: Final[dict[str, RpcMethod]] = {
    "queue.getStatus": RpcMethod(
        "The depth of the queue, live leases, and paused kinds.", NoParams, QueueView, _get_status
    ),
    "queue.pause": RpcMethod(
        "Lease no more jobs of a kind; live leases continue.",
        PauseParams,
        CommandResult,
        privileged_handler(lambda params, _: PauseKind(params.kind, params.reason)),
        OPERATORS,
        is_write=True,
    ),
    "queue.resume": RpcMethod(
        "Lease jobs of a kind again.",
        ResumeParams,
        CommandResult,
        privileged_handler(lambda params, _: ResumeKind(params.kind)),
        OPERATORS,
        is_write=True,
    ),
    "job.listDeadLetters": RpcMethod(
        "Jobs that failed too often.", ListFailedJobsParams, queries.Page, _list_dead_letters, OWNERS
    ),
    "job.requeue": RpcMethod(
        "Requeue a job that failed too often.", JobParams, CommandResult, _requeue, OPERATORS, is_write=True
    ),
}
