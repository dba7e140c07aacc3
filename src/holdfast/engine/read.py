"""Reads: one record from memory, from rows on their way or from the tables; lists from the tables, with `as_of`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec

from holdfast.core import law
from holdfast.core.canon import H
from holdfast.core.canon import decode as decode_canonical
from holdfast.core.chain.blocks import Block
from holdfast.core.escrow.acts import Reserve, Reserved, hold_key
from holdfast.core.escrow.books import Account, Hold
from holdfast.core.event import PAYLOAD_TAG, Event, Tip
from holdfast.core.job.quorum import replica_ids
from holdfast.core.job.record import Job, Spec
from holdfast.core.lease.record import Lease
from holdfast.core.policy import Policy
from holdfast.core.proof.acts import ProofAccepted, link_key
from holdfast.core.provider.record import Provider
from holdfast.core.queue.acts import JobAdmitted, job_key
from holdfast.core.refusal import Corrupt
from holdfast.core.result.record import Consumption, Leaf, Result, ResultStatus
from holdfast.core.retention import Pass, is_dropped
from holdfast.core.retention.books import Tombstone
from holdfast.core.state import TABLES, State
from holdfast.core.values import AccountId, Amount, BatchNo, Digest, EventNo, Height, HoldId, ProviderId, TaskId
from holdfast.engine.project import RowKey
from holdfast.engine.tail import Tail
from holdfast.ports import Journal, Row, Tables, is_gone

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")
PAGE_MAX = 1_000
_RESTORE: Final = "restore it from a backup"


class Standing(msgspec.Struct, frozen=True):
    """Where somebody who answers reads stands: a follower's tip says how far it has come."""

    role: str
    phase: str
    tip: Tip
    tables_as_of: EventNo


class Source(Protocol):
    """Who can be asked: the owner, or a follower that has folded the same journal (ENG-006)."""

    policy: Policy
    journal: Journal
    tables: Tables
    state: State
    tail: Tail

    async def ask(self, question: Callable[[State], T]) -> T: ...
    def peek(self, key: RowKey) -> Row | None: ...
    def standing(self) -> Standing: ...


class Listing(msgspec.Struct, frozen=True):
    """Some rows in key order, and the event up to which they are complete (ENG-004)."""

    rows: list[Any]
    as_of: EventNo
    next_after: str | int | None
    """Where the next page starts, None at the end."""


async def account(source: Source, owner: AccountId) -> Account | None:
    """An account as it is now: accounts never leave memory."""
    return await source.ask(lambda state: _copy(state.ledger.accounts.get(owner)))


async def hold(source: Source, id_: HoldId) -> Hold | None:
    """A reservation as it is now, from memory while it is open, from the projection once it is final."""
    image = await source.ask(lambda state: _copy(state.ledger.holds.get(id_)))
    return image or await _claimed(source, Hold, "hold", hold_key(Reserve(id_, AccountId(""), Amount(0))))


async def job(source: Source, id_: TaskId) -> Job | None:
    """A job as it is now, from memory while it lives or its money can still move, else from the projection."""
    image = await source.ask(lambda state: _copy(state.queue.jobs.get(id_)))
    return image or await _claimed(source, Job, "job", job_key(id_))


async def replicas(source: Source, of: Job) -> list[Job]:
    """Those of a job that has some (LEA-009), by index; they are known by their names as long as it is."""
    ids = replica_ids(of.id, of.quorum_m) if of.quorum_m else ()
    found = [await job(source, id_) for id_ in ids]
    return [each for each in found if each is not None]


async def job_of(source: Source, event: EventNo) -> Job | None:
    """The job that an event admitted."""
    return await _row(source, Job, "job", event)


async def admitted(source: Source, event: EventNo) -> JobAdmitted | None:
    """A job as it was when an event admitted it, where history still has that event."""
    found = await _event(source, event)
    return found if isinstance(found, JobAdmitted) else None


async def block(source: Source, height: Height) -> Block | None:
    """The block of this height on the active chain."""

    def in_memory(state: State) -> Block | None:
        """The block itself, or the lowest in memory above it."""
        chain = state.chain
        if not 1 <= height <= chain.head.height:
            return None
        found = chain.recent.get(height) or chain.base
        return _copy(found.block) if found is not None else None

    image = await source.ask(in_memory)
    if image is None or image.height == height:
        return image
    rows, _ = await source.tables.page("block", {"height": height, "status": "SEALED"}, 0, 1)
    if rows and source.peek(("block", rows[0][0])) is None:
        return _record(Block, rows[0])
    while image is not None and image.height > height:  # not in the tables yet: a block covers the sealing of the last
        image = await _row(source, Block, "block", image.first_event)
    return image


async def result(source: Source, id_: TaskId) -> Result | None:
    """A result as it is now, from memory while a reorg can unlink it, else from the projection."""
    image = await source.ask(lambda state: _copy(state.results.get(id_)))
    return image or await old_result(source, id_)


async def old_result(source: Source, id_: TaskId) -> Result | None:
    """A result that left memory: from its row, or by what its task is linked to while the row is on its way."""
    rows, _ = await source.tables.page("result", {"task_id": id_}, 0, 1)
    if not rows:
        return await _claimed(source, Result, "result", link_key(id_)) or await _buried(source, id_)
    row = source.peek(("result", rows[0][0])) or rows[0]
    return await _buried(source, id_) if is_gone(row) else _record(Result, row)


async def _buried(source: Source, id_: TaskId) -> Result | None:
    """What is known of a result whose record was vacuumed (RET-002): its tombstone, and the leaf that stays."""
    rows, _ = await source.tables.page("tombstone", {"task_id": id_}, 0, 1)
    number = EventNo(rows[0][0]) if rows else await _event_of(source, link_key(id_))  # type: ignore[arg-type]
    stone = await _row(source, Tombstone, "tombstone", number) if number is not None else None
    if stone is None:
        return None
    (leaf,) = await leaves(source, stone.leaf, 1)
    told: Any = decode_canonical(leaf)
    _, nullifier, result_digest, size, commitment, height = told
    names = (nullifier, result_digest, size, "", commitment, Height(0), stone.leaf)
    event = await _event(source, stone.event)  # whose it is stands there as long as history has it
    whose = (event.caller, event.kind, event.earliest) if isinstance(event, ProofAccepted) else ()
    nobody = (ProviderId(b""), AccountId(""), 0, "")
    return Result(stone.event, id_, ResultStatus.RESOLVED, height, *names, *nobody, "vacuumed", *whose)


async def consumption(source: Source, of: Result) -> Consumption | None:
    """That a result was used, where it was: from memory while a reorg can take it back, else from its row."""
    image = await source.ask(lambda state: _copy(state.consumptions.get(of.task_id)))
    found = image or await _row(source, Consumption, "consumption", of.event)
    return found if found is not None and found.height else None


async def hot_output(source: Source, found: Result) -> bytes | None:
    """A result's bytes where they are kept hot: beside the batch that accepted its proof, until they are let go."""
    if await source.ask(lambda state: is_dropped(state, Pass.HOT, found.event)):
        return None
    event = await _event(source, found.event)
    if not isinstance(event, ProofAccepted) or event.output is None:
        return None
    if event.output.inline is not None:  # as the first version kept small ones
        return event.output.inline
    return await _attached(source, found.event, event.output.digest)


async def attempts(source: Source, id_: TaskId) -> list[Lease]:
    """All leases of a job, in order: those that are over from the projection, the live one from memory."""
    live = await source.ask(lambda state: _copy(state.leases.by_job.get(id_)))
    rows, _ = await source.tables.page("lease", {"job_id": id_}, 0, PAGE_MAX)
    newest = [source.peek(("lease", row[0])) or row for row in rows]
    found = {row[0]: _record(Lease, row) for row in newest if not is_gone(row)}
    if live is not None:
        found[live.event] = live
    return [found[event] for event in sorted(found)]  # type: ignore[type-var]


async def provider(source: Source, id_: ProviderId) -> Provider | None:
    """A provider as it is now: providers never leave memory."""
    return await source.ask(lambda state: _copy(state.providers.get(id_)))


async def leaves(source: Source, first: int, count: int) -> list[bytes]:
    """Leaves of the log of results, from one place on; the newest may be on their way to the tables."""
    found = list[bytes]()
    for start in range(first, first + count, PAGE_MAX):
        places = range(start, min(start + PAGE_MAX, first + count))
        there = {place: source.peek(("leaf", place)) for place in places}  # first: a row is on its way or in the tables
        rows, _ = await source.tables.page("leaf", {}, start - 1, len(places))
        stored = {row[0]: row for row in rows}
        found += [_leaf(place, there[place] or stored.get(place)) for place in places]
    return found


def _leaf(place: int, row: Row | None) -> bytes:
    if row is None or is_gone(row):
        raise Corrupt("RES-008", f"leaf {place} of the log is missing", "run holdfast db rebuild")
    return _record(Leaf, row).raw


async def spec(source: Source, found: Job) -> bytes:
    """What a job asks for: small payloads have a row, large ones are beside their batch (ENG-007)."""
    event = found.parent_event or found.event  # a replica's is its job's (LEA-009)
    small = await _row(source, Spec, "spec", event)
    raw = small.raw if small is not None else await _attached(source, event, found.spec_digest)
    if raw is None or H(PAYLOAD_TAG, raw) != found.spec_digest:
        raise Corrupt("ENG-007", f"the payload of job {found.id.hex()} is missing or damaged", _RESTORE)
    return raw


async def _claimed(source: Source, kind: type[R], table: str, key: bytes) -> R | None:
    number = await _event_of(source, key)
    return None if number is None else await _row(source, kind, table, number)


async def _row(source: Source, kind: type[R], table: str, key: object) -> R | None:
    row = source.peek((table, key)) or await source.tables.get(table, key)
    return _record(kind, row) if row and not is_gone(row) else None


async def _attached(source: Source, event: EventNo, digest: Digest) -> bytes | None:
    number = await source.journal.batch_of(event)
    return None if number is None else await source.journal.attachment(number, digest)


async def memo(source: Source, found: Hold) -> bytes:
    """What a reservation was made for: small memos are in their event, large ones beside its batch (ENG-007)."""
    if found.memo_digest is None:
        return b""
    raw = await _attached(source, found.event, found.memo_digest) or await _inline_memo(source, found.event)
    if raw is None or H(PAYLOAD_TAG, raw) != found.memo_digest:
        raise Corrupt("ENG-007", f"the memo of event {found.event} is missing or damaged", _RESTORE)
    return raw


async def page(source: Source, table: str, match: Mapping[str, object], after: str | int, limit: int) -> Listing:
    """A list is read from the tables and says as of which event; it may lag the newest by a moment."""
    limit = min(limit, PAGE_MAX)
    rows, as_of = await source.tables.page(table, match, after, limit)
    next_after = rows[-1][0] if len(rows) == limit else None
    assert next_after is None or isinstance(next_after, str | int)
    return Listing([_record(TABLES[table], row) for row in rows], as_of, next_after)


def _copy(found: R | None) -> R | None:
    """The record as it is at this moment: the one in memory goes on changing."""
    return msgspec.structs.replace(found) if found is not None else None


async def _event_of(source: Source, key: bytes) -> EventNo | None:
    if (number := source.state.claims.event_of(key)) is not None:
        return number
    old = await source.tables.find_claim(key)
    return old.event if old else None


async def _inline_memo(source: Source, event: EventNo) -> bytes | None:
    found = await _event(source, event)
    return found.memo.inline if isinstance(found, Reserved) and found.memo is not None else None


async def _event(source: Source, number: EventNo) -> Event | None:
    """An event from the journal; None where history begins after it."""
    in_batch = await source.journal.batch_of(number)
    if in_batch is None:
        return None
    async for batch in source.journal.read(BatchNo(in_batch - 1), in_batch):
        if batch.first <= number <= batch.last:
            return law.unpack(batch)[number - batch.first]
    return None


def _record(kind: type[R], row: Row) -> R:
    try:
        return msgspec.convert(row, kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, ValueError) as fault:
        raise Corrupt("ENG-004", f"a row of the tables is damaged: {fault}", "run holdfast db rebuild") from fault
