"""What an event does to retention: positions advance, rows are deleted, and pending deletions are recorded."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.base.values import EventNo
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.retention.messages import AuditEnded, BytesDeleted, HotDropped, Vacuumed, WarmDropped
from holdfast.core.retention.model import REQUESTED_MEANWHILE, HasRetention, Pass, PassProgress


def apply_hot_dropped(state: HasRetention, event: HotDropped) -> None:
    _advance(state, Pass.HOT, event.until, event.results, event.bytes)
    for number in event.retried:
        del state.skipped_hot[number]
    state.skipped_hot.update(event.skipped)
    if not event.is_deleted:
        if event.until > event.after:
            state.hot_deletes_pending[event.after] = event.until
        state.hot_deletes_pending.update((EventNo(number - 1), number) for number in event.retried)


def apply_warm_dropped(state: HasRetention, event: WarmDropped) -> None:
    progress = _advance(state, Pass.WARM, event.until, event.results, event.bytes)
    progress.lost += event.lost
    progress.lost_bytes += event.lost_bytes
    for number in event.retried:
        del state.skipped_warm[number]
    state.skipped_warm.update(event.skipped)
    state.warm_deletes_pending.update(event.deletable)
    if event.orphans:
        _advance(state, Pass.ORPHANS, EventNo(0), event.orphans, event.orphan_bytes)


def apply_bytes_deleted(state: HasRetention, event: BytesDeleted) -> None:
    if event.tier == Pass.HOT:
        state.hot_deletes_pending.clear()
        return
    for digest in event.spared:
        state.skipped_warm[state.warm_deletes_pending[digest]] = REQUESTED_MEANWHILE
    state.warm_deletes_pending.clear()


def apply_vacuumed(state: HasRetention, event: Vacuumed) -> None:
    """RET-002: a tombstone replaces the row of the record; the leaf stays."""
    _advance(state, Pass.RECORDS, event.until, len(event.tombstones))
    for tombstone in event.tombstones:
        state.touched["result"][tombstone.event] = None
        state.touched["tombstone"][tombstone.event] = tombstone


def apply_audit_ended(state: HasRetention, event: AuditEnded) -> None:
    _advance(state, Pass.AUDIT, event.until, len(event.events))
    for number in event.events:
        state.touched["tombstone"][number] = None
        state.touched["consumption"][number] = None


def record_recent_digests(state: HasRetention, accepted: Iterable[tuple[EventNo, ProofAccepted]]) -> None:
    """The bytes of results that were just accepted are needed, even where older rows do not show it."""
    for number, event in accepted:
        state.recent_digests.add(event.digest, number)


def _advance(state: HasRetention, pass_: Pass, until: EventNo, results: int, bytes_: int = 0) -> PassProgress:
    progress = state.retention_progress.setdefault(pass_.value, PassProgress())
    progress.until = until
    progress.results += results
    progress.bytes += bytes_
    return progress
