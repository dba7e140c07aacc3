"""The state as bytes (ENG-003): its snapshot, and the state that a snapshot restores."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final

import msgspec

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead, OwnershipTaken
from holdfast.core.base.values import AccountId, Digest, ReservationId, TaskId
from holdfast.core.chain.model import Chain
from holdfast.core.escrow.model import Reservation
from holdfast.core.evidence.model import rebuild_channel_sessions, rebuild_dead_letters_waiting
from holdfast.core.index.packed_records import PackedRecords
from holdfast.core.job.model import Job
from holdfast.core.lease.model import rebuild_leases
from holdfast.core.policy import Policy
from holdfast.core.policy_change.model import adopted_policy
from holdfast.core.provider.apply import rebuild_provider_timers
from holdfast.core.schedule.model import rebuild_schedules
from holdfast.core.state import PARTS, State, StatePart
from holdfast.core.state_digest import READ_PART, digest
from holdfast.engine.snapshots.waiting_columns import WaitingColumns, columns_of, load_columns

SNAPSHOT_TAG: Final = "holdfast.snapshot.v1"
MAGIC: Final = b"holdfast snapshot 1\n"
_pack = msgspec.msgpack.Encoder().encode


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A state at the end of a batch, as stored; `digest` is the state's. A part that is missing is empty."""

    head: JournalHead
    digest: Digest
    owner: OwnershipTaken | None
    chain: Chain | None
    parts: dict[str, msgspec.Raw]
    """By their stored names, as `PARTS` lists them; of jobs and reservations those that are not packed."""
    waiting_jobs: WaitingColumns | None = None


def snapshot(state: State, head: JournalHead) -> bytes:
    """The state as bytes with their own hash; `head` is the last batch that was folded.

    All jobs that can be packed are packed first: what a snapshot says does not depend on how long this process ran.
    """
    state.queue.jobs.pack_all()
    stored = Snapshot(
        head=head,
        digest=digest(state),
        owner=state.owner,
        chain=state.chain,
        parts={part.stored: msgspec.Raw(_pack(_as_stored(part, READ_PART[part.stored](state)))) for part in PARTS},
        waiting_jobs=columns_of(state.queue),
    )
    body = _pack(stored)
    return b"".join((MAGIC, checksum(body), body))


def checksum(body: bytes | memoryview) -> bytes:
    """What a snapshot begins with. SHA-256, because processors compute it: a start hashes all of the file."""
    hasher = sha256(SNAPSHOT_TAG.encode())
    hasher.update(body)
    return hasher.digest()


def _as_stored(part: StatePart, entries: Any) -> Any:
    if not part.key:
        return entries
    return list((entries.records if isinstance(entries, PackedRecords) else entries).values())


def restore(raw: bytes, policy: Policy) -> tuple[State, JournalHead]:
    """The state that `snapshot` packed; Corrupt where any bit of it changed.

    `holdfast db check` compares it with the fold of its journal; a start does not.
    """
    stored = _read(raw)
    state = State(policy, last_event=stored.head.last, owner=stored.owner)
    if stored.waiting_jobs is not None:
        load_columns(state.queue, stored.waiting_jobs)
    for part in PARTS:
        if (packed := stored.parts.get(part.stored)) is not None:
            _put(state, part, msgspec.msgpack.decode(packed, type=part.type))
    if stored.chain is not None:
        state.chain = stored.chain
        _share_head_block(state.chain)
    state.policy = adopted_policy(state.policy_bytes) or policy
    _rebuild_indexes(state)
    state.recent_digests.complete_after = stored.head.last  # earlier digests are in rows only (RET-002)
    return state, stored.head


def _read(raw: bytes) -> Snapshot:
    begin = len(MAGIC) + sha256().digest_size
    magic, hash_, body = raw[: len(MAGIC)], raw[len(MAGIC) : begin], memoryview(raw)[begin:]
    if magic != MAGIC:
        raise Corrupt("ENG-003", f"not a snapshot of this version: it begins with {magic!r}")
    if hash_ != checksum(body):
        raise Corrupt("ENG-003", "the snapshot does not match its stored hash")
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.DecodeError as fault:
        raise Corrupt("ENG-003", f"the snapshot cannot be read: {fault}") from fault


def _put(state: State, part: StatePart, value: Any) -> None:
    holder: Any = state
    *holders, name = part.path.split(".")
    for step in holders:
        holder = getattr(holder, step)
    if part.key:
        key_of, before = attrgetter(part.key), getattr(holder, name)
        value = {key_of(record): record for record in value}
        if isinstance(before, PackedRecords):
            before.records = value
            return
    setattr(holder, name, value)


def _rebuild_indexes(state: State) -> None:
    """Rebuild what is not stored because it follows from the stored parts."""
    _share_equal_values(state.queue.jobs.records, state.ledger.reservations.records.values())
    state.queue.index(list(state.queue.jobs.records.values()))
    state.leases = rebuild_leases(list(state.leases.by_id.values()))
    state.schedules = rebuild_schedules(list(state.schedules.by_id.values()))
    state.channel_sessions = rebuild_channel_sessions(state.watermarks)
    state.dead_letters_waiting = rebuild_dead_letters_waiting(state.dead_letters)
    rebuild_provider_timers(state)


def _share_equal_values(jobs: dict[TaskId, Job], reservations: Iterable[Reservation]) -> None:
    """Keep equal values of many jobs once, as admission does: it saves a third of a kilobyte per job."""
    texts, raws = dict[str, str]().setdefault, dict[bytes, bytes]().setdefault
    for job in jobs.values():
        job.caller = AccountId(texts(job.caller, job.caller))
        job.proof, job.requirements = texts(job.proof, job.proof), raws(job.requirements, job.requirements)
    for reservation in reservations:
        if (job_of := jobs.get(TaskId(reservation.id))) is not None:
            reservation.id, reservation.owner = ReservationId(job_of.id), job_of.caller


def _share_head_block(chain: Chain) -> None:
    """Make the head the same object as the kept block, not a copy of it."""
    for kept in (*chain.unfinalized.values(), *([chain.last_final] if chain.last_final else [])):
        if kept.block.event == chain.head.event:
            chain.head = kept.block
