"""Records wherever they are: the live record, else the row (ENG-004); lists with `as_of`.

What memory knows is asked by a named query. What left memory is in the tables, once they have reached the event up to
which memory was evicted: a read of a row waits for that, so it is never older than the eviction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.canonical import H
from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import PAYLOAD_TAG, Event
from holdfast.core.base.values import AccountId, BatchNo, Digest, EventNo, Height, ProviderId, ReservationId, TaskId
from holdfast.core.chain.model import Block
from holdfast.core.escrow.messages import Reserved, reservation_key
from holdfast.core.escrow.model import Reservation, Transfer, TransferKind
from holdfast.core.index.unique_ids import Claim
from holdfast.core.job.model import Job, SpecRow
from holdfast.core.job.quorum import replica_ids
from holdfast.core.lease.model import Lease
from holdfast.core.policy_change.messages import PolicyAdopted
from holdfast.core.proof.messages import ProofAccepted, link_key
from holdfast.core.queue.messages import JobAdmitted, job_key
from holdfast.core.result.apply import make_result
from holdfast.core.result.model import Consumption, LogLeaf, Result, ResultStatus
from holdfast.core.retention.model import Tombstone
from holdfast.core.tables import TABLES, record_from_row
from holdfast.engine.queries.accounts import GetOpenReservation
from holdfast.engine.queries.chain import (
    FindBlockInMemory,
    GetBlockInMemory,
    GetChainHead,
    GetLeavesInMemory,
    GetUnfinalizedConsumption,
    GetUnfinalizedResult,
    IsHotOutputDropped,
)
from holdfast.engine.queries.jobs import GetAttempts, GetLiveJob
from holdfast.engine.queries.node import GetClaimingEvent, GetEvictedAsOf
from holdfast.engine.queries.source import Page, ReadSource
from holdfast.ports import Row

R = TypeVar("R", bound=msgspec.Struct)
V = TypeVar("V")
PAGE_MAX: Final = 1_000
EVENT_MAX: Final = (1 << 63) - 1
"""Above every event: where a list begins that shows the newest first."""
VACUUMED: Final = "vacuumed"
"""The method of a result of which only the leaf is known: neither record nor history has the rest any more."""
_RESTORE: Final = "restore it from a backup"


async def reservation(source: ReadSource, id_: ReservationId) -> Reservation | None:
    """A reservation as it is now, from memory while it is open, from its row once it is final."""
    live = await source.query_durable(GetOpenReservation(id_))
    return live or await _row_by_claim(source, Reservation, "reservation", reservation_key(id_))


async def transfer(source: ReadSource, reference: str, kind: TransferKind) -> Transfer | None:
    """A deposit, a withdrawal or a return by its reference, as the tables have it once they have caught up."""
    await source.wait_tables(source.replication_status().tip.last)
    rows, _ = await source.tables.page("transfer", {"reference": reference, "kind": kind.value}, -1, 1)
    return _record(Transfer, rows[0]) if rows else None


async def job(source: ReadSource, id_: TaskId) -> Job | None:
    """A job as it is now, from memory while it lives or its money can still move, else from its row."""
    live = await source.query_durable(GetLiveJob(id_))
    return live or await _row_by_claim(source, Job, "job", job_key(id_))


async def replicas(source: ReadSource, of: Job) -> list[Job]:
    """LEA-009: the replicas of a job, by index; their ids follow from the id of the job."""
    ids = replica_ids(of.id, of.quorum_m) if of.quorum_m else ()
    jobs = [await job(source, id_) for id_ in ids]
    return [each for each in jobs if each is not None]


async def job_row(source: ReadSource, event: EventNo) -> Job | None:
    """The job's row as the tables have it, by the event that admitted it."""
    return await _row(source, Job, "job", event)


async def job_by_event(source: ReadSource, event: EventNo) -> Job | None:
    """The job that an event admitted; its row names it, or the event where the tables have not reached it."""
    row = await _row(source, Job, "job", event) or await admission(source, event)
    return await job(source, row.id) if row is not None else None


async def admission(source: ReadSource, event: EventNo) -> JobAdmitted | None:
    """The event that admitted a job, as long as the journal or its archive has it."""
    admitted = await _event(source, event)
    return admitted if isinstance(admitted, JobAdmitted) else None


async def block(source: ReadSource, height: Height) -> Block | None:
    """The block of this height on the active chain."""
    live = await source.query_durable(GetBlockInMemory(height))
    if live is not None or not 1 <= height <= source.query_undurable(GetChainHead()).finalized:
        return live
    rows = await _find_rows(source, "block", {"height": height, "status": "SEALED"})
    return _record(Block, rows[0]) if rows else None


async def block_by_hash(source: ReadSource, hash_: bytes) -> Block | None:
    """The block with this hash on the active chain."""
    live = await source.query_durable(FindBlockInMemory(hash_))
    if live is not None:
        return live
    rows = await _find_rows(source, "block", {"hash": hash_, "status": "SEALED"})
    return _record(Block, rows[0]) if rows else None


async def result(source: ReadSource, id_: TaskId) -> Result | None:
    """A result as it is now, from memory while a reorg can unlink it, else from its row."""
    live = await source.query_durable(GetUnfinalizedResult(id_))
    return live or await stored_result(source, id_)


async def stored_result(source: ReadSource, id_: TaskId) -> Result | None:
    """A result that left memory: its row, or what is left of it."""
    event = await _claiming_event(source, link_key(id_))  # of the accepted proof: the key of both rows
    if event is None:
        return None
    return await _row(source, Result, "result", event) or await _vacuumed_result(source, id_, event)


async def _vacuumed_result(source: ReadSource, id_: TaskId, event_no: EventNo) -> Result | None:
    """RET-002, RES-008: what is known of a result whose record was vacuumed: its leaf for ever, and the rest as long as
    history has the event that accepted its proof."""
    index, leaf = await _leaf_of(source, id_, event_no)
    if leaf is None:
        return None
    fields: Any = decode_canonical(leaf)
    _, nullifier, result_digest, size, commitment, height = fields
    event = await _event(source, event_no)
    if isinstance(event, ProofAccepted):
        known = make_result(event_no, event)
        known.status, known.height_resolved, known.leaf_index = ResultStatus.RESOLVED, height, index
        return known
    return Result(
        event=event_no,
        task_id=id_,
        status=ResultStatus.RESOLVED,
        height_resolved=height,
        proof_nullifier=nullifier,
        result_digest=result_digest,
        result_size=size,
        mime_type="",
        da_commitment=commitment,
        expires_at=Height(0),
        leaf_index=index,
        provider_id=ProviderId(b""),
        payee=AccountId(""),
        charged=0,
        method=VACUUMED,
        reasons="",
    )


async def _leaf_of(source: ReadSource, id_: TaskId, event: EventNo) -> tuple[int, bytes | None]:
    """The leaf of a final result, by its tombstone, or once that is gone by the block that has the proof's event.

    Each block of the active chain includes the transactions of all events up to its own that no block below it has.
    """
    if (tombstone := await _row(source, Tombstone, "tombstone", event)) is not None:
        return tombstone.leaf, (await leaves(source, tombstone.leaf, 1))[0]
    for row in await _find_rows(source, "block", {"status": "SEALED"}, 1, event):
        block = _record(Block, row)
        first = block.log_size - block.result_count
        for index, raw in enumerate(await leaves(source, first, block.result_count), first):
            if decode_canonical(raw)[0] == id_:  # type: ignore[index]
                return index, raw
    return -1, None


async def consumption(source: ReadSource, of: Result) -> Consumption | None:
    """The use of a result, None where it was not used: from memory while a reorg can undo it, else from its row."""
    live = await source.query_durable(GetUnfinalizedConsumption(of.task_id))
    used = live or await _row(source, Consumption, "consumption", of.event)
    return used if used is not None and used.height else None


async def hot_output(source: ReadSource, of: Result) -> bytes | None:
    """TIER-001: the output beside the batch that accepted its proof; None where it is not kept there."""
    if await source.query_durable(IsHotOutputDropped(of.event)):
        return None
    event = await _event(source, of.event)
    if not isinstance(event, ProofAccepted) or event.output is None:
        return None
    if event.output.inline is not None:  # an empty output
        return event.output.inline
    return await _attachment(source, of.event, event.output.digest)


async def attempts(source: ReadSource, id_: TaskId) -> list[Lease]:
    """All leases of a job, in order: from memory while the job is there, else from their rows."""
    live = await source.query_durable(GetAttempts(id_))
    if live.are_all:
        return live.leases
    leases = await _stored_attempts(source, id_)
    leases |= {lease.event: lease for lease in live.leases}
    return [leases[event] for event in sorted(leases)]


async def _stored_attempts(source: ReadSource, id_: TaskId) -> dict[EventNo, Lease]:
    """The leases in the row of a job, and the rows of those that came after an eviction."""
    event = await _claiming_event(source, job_key(id_))
    row = None if event is None else await _read_evicted(source, lambda: source.tables.get("job", event))
    if row is None:
        return {}
    packed = _unpacked_leases(row[-1])
    rows = await _find_rows(source, "lease", {"job_id": id_}, PAGE_MAX) if _record(Job, row).requeues else []
    return {lease.event: lease for lease in (*packed, *(_record(Lease, row) for row in rows))}


def _unpacked_leases(raw: object) -> list[Lease]:
    try:
        return msgspec.msgpack.decode(raw, type=list[Lease]) if isinstance(raw, bytes) else []
    except msgspec.DecodeError as fault:
        raise Corrupt("ENG-004", f"the leases in a row are damaged: {fault}", "run holdfast db rebuild") from fault


async def adoptions(source: ReadSource, newest: EventNo, limit: int) -> list[tuple[EventNo, PolicyAdopted]]:
    """Adopted policies (PRI-003), the newest first, as far back as the journal or its archive reaches."""
    adopted: list[tuple[EventNo, PolicyAdopted]] = []
    while newest and len(adopted) < limit:
        event = await _event(source, newest)
        if not isinstance(event, PolicyAdopted):
            break
        adopted.append((newest, event))
        newest = event.before
    return adopted


async def leaves(source: ReadSource, first: int, count: int) -> list[bytes]:
    """Leaves of the log of results, from an index on: of results in memory, else from their rows."""
    raws = list[bytes]()
    for start in range(first, first + count, PAGE_MAX):
        indexes = range(start, min(start + PAGE_MAX, first + count))
        live = await source.query_durable(GetLeavesInMemory(start, len(indexes)))
        stored = {} if len(live) == len(indexes) else await _leaf_rows(source, start, len(indexes))
        known = stored | live
        if missing := [index for index in indexes if index not in known]:
            raise Corrupt("RES-008", f"leaf {missing[0]} of the log is missing", "run holdfast db rebuild")
        raws += [known[index] for index in indexes]
    return raws


async def _leaf_rows(source: ReadSource, start: int, count: int) -> dict[int, bytes]:
    rows = await _find_rows(source, "leaf", {}, count, start - 1)
    return {leaf.place: leaf.raw for leaf in (_record(LogLeaf, row) for row in rows)}


async def spec(source: ReadSource, of: Job) -> bytes:
    """The payload of a job: a small one has a row, a large one is beside its batch (ENG-007)."""
    return (await specs(source, [of]))[0]


async def specs(source: ReadSource, of: Sequence[Job]) -> list[bytes]:
    """The payloads of these jobs, in their order; those that have a row are read together."""
    events = [job.parent_event or job.event for job in of]  # a replica has the payload of its job (LEA-009)
    found = {event: source.payloads.find(event) for event in events}
    if lacking := [event for event, raw in found.items() if raw is None]:
        rows = (_record(SpecRow, row) for row in await source.tables.find("spec", "event", lacking))
        found.update({row.event: row.raw for row in rows})
    payloads: list[bytes] = []
    for job, event in zip(of, events, strict=True):
        raw = found[event] or await _attachment(source, event, job.spec_digest)
        if raw is None and (admitted := await admission(source, event)) is not None:  # the tables have not reached it
            raw = admitted.payload.inline
        if raw is None or H(PAYLOAD_TAG, raw) != job.spec_digest:
            raise Corrupt("ENG-007", f"the payload of job {job.id.hex()} is missing or damaged", _RESTORE)
        payloads.append(raw)
    return payloads


async def memo(source: ReadSource, of: Reservation) -> bytes:
    """The memo of a reservation: a small one is in its event, a large one beside its batch (ENG-007)."""
    if of.memo_digest is None:
        return b""
    raw = await _attachment(source, of.event, of.memo_digest) or await _inline_memo(source, of.event)
    if raw is None or H(PAYLOAD_TAG, raw) != of.memo_digest:
        raise Corrupt("ENG-007", f"the memo of event {of.event} is missing or damaged", _RESTORE)
    return raw


async def page(
    source: ReadSource,
    table: str,
    match: Mapping[str, object],
    after: str | int,
    limit: int,
    *,
    is_newest_first: bool = False,
) -> Page:
    """A list from the tables, as of an event; it lags the newest events by a moment.

    Newest first, for tables whose key is an event: `after` is the last key of the page before, 0 for the first page.
    """
    limit = min(limit, PAGE_MAX)
    beyond = (after or EVENT_MAX) if is_newest_first else after
    rows, as_of = await source.tables.page(table, match, beyond, limit, is_newest_first=is_newest_first)
    next_after = rows[-1][0] if len(rows) == limit else None
    assert next_after is None or isinstance(next_after, str | int)
    return Page([_record(TABLES[table].record, row) for row in rows], as_of, next_after)


def merge_pages(pages: Sequence[Page], limit: int, *, is_newest_first: bool = False) -> Page:
    """Several lists by event as one: a record that moved from one to the other meanwhile is there once."""
    if len(pages) == 1:
        return pages[0]
    rows = {row.event: row for page in pages for row in page.rows}
    events = sorted(rows, reverse=is_newest_first)[:limit]
    is_more = len(events) == limit or any(page.next_after is not None for page in pages)
    as_of = min(page.as_of for page in pages)
    return Page([rows[event] for event in events], as_of, events[-1] if is_more and events else None)


# ------------------------------------------------------------------------------------------------ rows and events


async def _row_by_claim(source: ReadSource, kind: type[R], table: str, key: bytes) -> R | None:
    number = await _claiming_event(source, key)
    return None if number is None else await _row(source, kind, table, number)


async def _row(source: ReadSource, kind: type[R], table: str, key: object) -> R | None:
    row = await _read_evicted(source, lambda: source.tables.get(table, key))
    return _record(kind, row) if row is not None else None


async def _find_rows(
    source: ReadSource, table: str, match: Mapping[str, object], limit: int = 1, after: int = -1
) -> list[Row]:
    return await _read_evicted(source, lambda: source.tables.page(table, match, after, limit))


async def _read_evicted(source: ReadSource, read: Callable[[], Awaitable[tuple[V, EventNo]]]) -> V:
    """Read what is not in memory; while the tables have not reached its eviction, wait and read again."""
    needed = source.query_undurable(GetEvictedAsOf())
    while True:
        value, as_of = await read()
        if as_of >= needed:
            return value
        await source.wait_tables(needed)


async def _attachment(source: ReadSource, event: EventNo, digest: Digest) -> bytes | None:
    number = await source.journal.batch_of(event)
    return None if number is None else await source.journal.attachment(number, digest)


async def _claiming_event(source: ReadSource, key: bytes) -> EventNo | None:
    if (number := source.query_undurable(GetClaimingEvent(key))) is not None:
        return number
    found = await _read_evicted(source, lambda: _find_claim(source, key))
    return found.event if found is not None else None


async def _find_claim(source: ReadSource, key: bytes) -> tuple[Claim | None, EventNo]:
    claims, checkpoint = await source.tables.find_claims([key])
    return claims.get(key), checkpoint.last


async def _inline_memo(source: ReadSource, event: EventNo) -> bytes | None:
    reserved = await _event(source, event)
    return reserved.memo.inline if isinstance(reserved, Reserved) and reserved.memo is not None else None


async def _event(source: ReadSource, number: EventNo) -> Event | None:
    """An event from the journal or its archive; None where neither has it any more."""
    batch_number = await source.journal.batch_of(number)
    if batch_number is None:
        return None
    async for batch in source.journal.read(BatchNo(batch_number - 1), batch_number):
        if batch.first <= number <= batch.last:
            return journal_codec.unpack(batch)[number - batch.first]
    return None


def _record(kind: type[R], row: Row) -> R:
    try:
        return record_from_row(kind, row)
    except ValueError as fault:
        raise Corrupt("ENG-004", f"a row of the tables is damaged: {fault}", "run holdfast db rebuild") from fault
