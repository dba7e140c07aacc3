"""What an event does to retention: marks move, rows go, and what may still have to be deleted is remembered."""

from __future__ import annotations

from holdfast.core.retention.acts import AuditEnded, BytesGone, HotDropped, Vacuumed, WarmDropped
from holdfast.core.retention.books import Pass, Progress, Retaining
from holdfast.core.values import Digest, EventNo

ASKED_FOR = "somebody asked for these bytes while they were about to go"


def apply_hot_dropped(state: Retaining, event: HotDropped) -> None:
    _advance(state, Pass.HOT, event.until, event.results, event.bytes)
    for number in event.again:
        del state.kept_hot[number]
    state.kept_hot.update(event.left)
    if not event.is_swept:
        if event.until > event.after:
            state.leaving[event.after] = event.until
        state.leaving.update((EventNo(number - 1), number) for number in event.again)


def apply_warm_dropped(state: Retaining, event: WarmDropped) -> None:
    mark = _advance(state, Pass.WARM, event.until, event.results, event.bytes)
    mark.lost += event.lost
    mark.lost_bytes += event.lost_bytes
    for number in event.again:
        del state.kept_warm[number]
    state.kept_warm.update(event.left)
    state.condemned.update(event.condemned)
    if event.strays:
        _advance(state, Pass.STRAY, EventNo(0), event.strays, event.stray_bytes)


def apply_gone(state: Retaining, event: BytesGone) -> None:
    if event.tier == Pass.HOT:
        state.leaving.clear()
        return
    for digest in event.spared:
        state.kept_warm[state.condemned[digest]] = ASKED_FOR
    state.condemned.clear()


def apply_vacuumed(state: Retaining, event: Vacuumed) -> None:
    """RET-002: the row of the record goes, the slim one comes; the leaf is not touched."""
    _advance(state, Pass.INDEX, event.until, len(event.tombstones))
    for stone in event.tombstones:
        state.touched["result"][stone.event] = None
        state.touched["tombstone"][stone.event] = stone


def apply_audit_ended(state: Retaining, event: AuditEnded) -> None:
    _advance(state, Pass.AUDIT, event.until, len(event.events))
    for number in event.events:
        state.touched["tombstone"][number] = None
        state.touched["consumption"][number] = None


def note_accepted(state: Retaining, digest: Digest) -> None:
    """Bytes that a result was accepted with just now are needed, whatever older rows say."""
    state.recent.note(digest, state.last_event)


def _advance(state: Retaining, pass_: Pass, until: EventNo, results: int, bytes_: int = 0) -> Progress:
    mark = state.passes.setdefault(pass_.value, Progress())
    mark.until = until
    mark.results += results
    mark.bytes += bytes_
    return mark
