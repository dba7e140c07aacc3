"""Methods about evidence: sessions and their progress, their records, and dead letters."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.evidence.dead_letter_retry import retry_command
from holdfast.api.evidence.private_fields import hide_private
from holdfast.api.evidence.reader import SessionReader, dead_letter_bytes
from holdfast.api.node_access import OPERATORS, READERS, NodeAccess, Principal, RpcCall, RpcMethod
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.privileged import CommandResult, privileged_handler, submit_privileged
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import EventNo, ProviderId
from holdfast.core.evidence.messages import AssignChannel, DeadLetterResolved, ResolveDeadLetter, SealSession
from holdfast.core.evidence.model import (
    DeadLetter,
    DeadLetterStatus,
    SessionEnd,
    SessionWatermark,
    is_final,
)
from holdfast.engine import queries
from holdfast.engine.queries.evidence import GetSessions, GetWaitingDeadLetter, GetWatermark, LiveSession

PAGE_BYTES_MAX: Final = 512 << 10
"""Records in one answer, as long as there is more than one of them."""


class ListSessionsParams(msgspec.Struct, frozen=True):
    """A page of sessions in the order of their names; `cursor` is the last page's."""

    channel: str | None = None
    limit: int = 100
    cursor: str = ""


class SessionView(msgspec.Struct, frozen=True):
    """How far a session has come."""

    channel: str
    session: str
    provider_id: ProviderId
    owner: str
    """The certificate that may send for it, where it is the channel of a v0.1 sender."""
    acked: int
    pruned: int
    is_final: bool
    ending: str
    stored_ms: int
    """When its last records were stored, or when it was sealed."""
    streams: int
    """How many streams of it are open."""
    lag: int | None
    """How many records its sender is known to have beyond `acked`; only known while it is connected."""
    dead_letters: int
    """Dead letters of the channel that wait."""


class SessionPage(msgspec.Struct, frozen=True):
    """Some sessions, and the event up to which the list is complete."""

    sessions: list[SessionView]
    as_of: EventNo
    next_cursor: str | None


class ListRecordsParams(msgspec.Struct, frozen=True):
    """Records of a session after a sequence, in order."""

    channel: str
    session: str
    after: int | None = None
    """None begins with the oldest record that is kept."""
    limit: int = 100


class RecordPage(msgspec.Struct, frozen=True):
    """Records as they were spooled, byte for byte, one text each; of a job's payload and output only the length."""

    first: int
    lines: list[str]
    acked: int
    pruned: int
    is_final: bool


class ListDeadLettersParams(msgspec.Struct, frozen=True):
    """A page of dead letters, the oldest first unless told otherwise; `cursor` is the last page's."""

    channel: str | None = None
    status: DeadLetterStatus | None = DeadLetterStatus.WAITING
    limit: int = 100
    cursor: int = 0
    newest_first: bool = False
    """From the newest one down."""


class DeadLetterParams(msgspec.Struct, frozen=True):
    """Which dead letter: the number of the event that recorded it."""

    event: EventNo


class DeadLetterView(msgspec.Struct, frozen=True):
    """A dead letter with its bytes; None where they were not kept, or history has deleted them."""

    dead_letter: DeadLetter
    raw: bytes | None


class ResolveDeadLetterParams(msgspec.Struct, frozen=True):
    """Resolve a dead letter: retry the request of its record, or close it."""

    event: EventNo
    retry: bool = False
    note: str = ""


class SessionParams(msgspec.Struct, frozen=True):
    """Which session."""

    channel: str
    session: str


class SetOwnerParams(msgspec.Struct, frozen=True):
    """The certificate that may send for a channel; without a name, the one named like the channel."""

    channel: str
    owner: str = ""


# ------------------------------------------------------------------------------------------------ reading


async def _list_sessions(access: NodeAccess, _: RpcCall, params: ListSessionsParams) -> SessionPage | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    page = await queries.page(
        access.source, "watermark", filter_of({"channel": params.channel}), params.cursor, params.limit
    )
    live = await access.source.query_durable(GetSessions(tuple((row.channel, row.session) for row in page.rows)))
    views = [_session_view(access, row, now) for row, now in zip(page.rows, live, strict=True)]
    next_cursor = page.next_after if isinstance(page.next_after, str) else None
    return SessionPage(views, page.as_of, next_cursor)


def _session_view(access: NodeAccess, row: SessionWatermark, live: LiveSession) -> SessionView:
    watermark = live.watermark or row
    metrics = access.evidence_metrics
    streams = metrics.open_streams(watermark.channel, watermark.session) if metrics is not None else []
    return SessionView(
        channel=watermark.channel,
        session=watermark.session,
        provider_id=watermark.provider_id,
        owner="" if watermark.provider_id else live.channel_owner,
        acked=watermark.acked,
        pruned=watermark.pruned,
        is_final=is_final(watermark),
        ending=SessionEnd(watermark.ending).name,
        stored_ms=max(watermark.at_ms, watermark.sealed_ms),
        streams=len(streams),
        lag=max((each.lag for each in streams), default=None),
        dead_letters=live.dead_letters,
    )


async def _list_records(access: NodeAccess, _: RpcCall, params: ListRecordsParams) -> RecordPage | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    watermark = await access.source.query_durable(GetWatermark(params.channel, params.session))
    while watermark is not None:
        after = watermark.pruned if params.after is None else params.after
        if after < watermark.pruned:
            message = f"the records of {watermark.id} up to {watermark.pruned} were pruned by policy"
            return Refused("EVD-008", message, f"begin after {watermark.pruned}", "EvidencePruned")
        try:
            lines = await _read_page(access, params, after, min(watermark.acked, after + params.limit))
        except Corrupt:
            now = await access.source.query_durable(GetWatermark(params.channel, params.session))
            if now is None or now.pruned <= watermark.pruned:
                raise
            watermark = now  # records were pruned while they were read
            continue
        return RecordPage(after + 1, lines, watermark.acked, watermark.pruned, is_final(watermark))
    message = f"no session {params.session!r:.140} of channel {params.channel!r:.140}"
    return Refused("EVD-001", message, name="NotFound")


async def _read_page(access: NodeAccess, params: ListRecordsParams, after: int, last: int) -> list[str]:
    """Some of the records up to `last`, at least one where there is any."""
    lines, size = list[str](), 0
    if after < last:
        reader = SessionReader(access.source, params.channel, params.session)
        async for _sequence, line in reader.lines(after + 1, last):
            size += len(line)
            if lines and size > PAGE_BYTES_MAX:
                break
            lines.append(hide_private(line).decode())
    return lines


async def _list_dead_letters(access: NodeAccess, _: RpcCall, params: ListDeadLettersParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    match = filter_of({"channel": params.channel, "status": params.status})
    return await queries.page(
        access.source, "dead_letter", match, params.cursor, params.limit, is_newest_first=params.newest_first
    )


async def _get_dead_letter(access: NodeAccess, _: RpcCall, params: DeadLetterParams) -> DeadLetterView | Refused:
    dead_letter = await _find_dead_letter(access, params.event)
    if isinstance(dead_letter, Refused):
        return dead_letter
    raw = await dead_letter_bytes(access.source, dead_letter.event)
    return DeadLetterView(dead_letter, None if raw is None else hide_private(raw))


async def _find_dead_letter(access: NodeAccess, event: EventNo) -> DeadLetter | Refused:
    """From memory while it waits, from the tables once it is resolved."""
    waiting = await access.source.query_durable(GetWaitingDeadLetter(event))
    if waiting is not None:
        return waiting
    page = await queries.page(access.source, "dead_letter", {}, event - 1, 1)
    if page.rows and page.rows[0].event == event:
        return page.rows[0]  # type: ignore[no-any-return]
    return Refused("EVD-007", f"no dead letter {event}", "holdfast evidence dead-letter list", "NotFound")


# ------------------------------------------------------------------------------------------------ changing


async def _resolve_dead_letter(
    access: NodeAccess, call: RpcCall, params: ResolveDeadLetterParams
) -> DeadLetterView | Refused:
    dead_letter = await _find_dead_letter(access, params.event)
    if isinstance(dead_letter, Refused):
        return dead_letter
    raw = await dead_letter_bytes(access.source, dead_letter.event)
    retry = await retry_command(access, dead_letter, raw) if params.retry else None
    if isinstance(retry, Refused):
        return retry
    outcome = await submit_privileged(access, call, ResolveDeadLetter(dead_letter.event, params.note, retry))
    if isinstance(outcome, Refused):
        return outcome
    resolved = outcome.fact
    assert isinstance(resolved, DeadLetterResolved)
    after = msgspec.structs.replace(dead_letter, status=resolved.status, note=resolved.note, ended_ms=resolved.at_ms)
    return DeadLetterView(after, None if raw is None else hide_private(raw))


def _seal_session(params: SessionParams, _: Principal) -> SealSession:
    return SealSession(params.channel, params.session)


def _assign_channel(params: SetOwnerParams, _: Principal) -> AssignChannel:
    return AssignChannel(params.channel, params.owner)


METHODS: Final[dict[str, RpcMethod]] = {
    "evidence.listSessions": RpcMethod(
        "Sessions of evidence and their progress.", ListSessionsParams, SessionPage, _list_sessions, READERS
    ),
    "evidence.listRecords": RpcMethod(
        "Records of a session, as they were sent.", ListRecordsParams, RecordPage, _list_records, READERS
    ),
    "evidence.listDeadLetters": RpcMethod(
        "Records that were rejected.", ListDeadLettersParams, queries.Page, _list_dead_letters, READERS
    ),
    "evidence.getDeadLetter": RpcMethod(
        "One dead letter, with its bytes.", DeadLetterParams, DeadLetterView, _get_dead_letter, READERS
    ),
    "evidence.resolveDeadLetter": RpcMethod(
        "Resolve a dead letter: retry its request, or close it.",
        ResolveDeadLetterParams,
        DeadLetterView,
        _resolve_dead_letter,
        OPERATORS,
        is_write=True,
    ),
    "evidence.sealSession": RpcMethod(
        "Seal a session: no more records of it are accepted.",
        SessionParams,
        CommandResult,
        privileged_handler(_seal_session),
        OPERATORS,
        is_write=True,
    ),
    "evidence.setOwner": RpcMethod(
        "Set which certificate may send for a channel.",
        SetOwnerParams,
        CommandResult,
        privileged_handler(_assign_channel),
        OPERATORS,
        is_write=True,
    ),
}
