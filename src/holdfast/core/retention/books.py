"""How far each pass has come (RET-002), what it left behind and why, what is decided and perhaps not deleted yet."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.result.record import Resolving
from holdfast.core.values import Digest, EventNo, Height, TaskId

KEPT_MAX: Final = 10_000
"""So many results a pass leaves behind; then it waits for somebody to find out what is wrong."""
RECENT_MAX: Final = 65_536


class Pass(StrEnum):
    """The passes in their order; nothing is in a later one before it was in the ones above it."""

    HOT = "hot"
    """Bytes leave the store."""
    WARM = "warm"
    """Bytes leave the disk."""
    INDEX = "index"
    """The record leaves its table; a tombstone takes its place."""
    AUDIT = "audit"
    """The tombstone goes as well; the leaf of the log stays for ever."""
    STRAY = "stray"
    """Files leave the disk that never were a result's, or are no result's any more; so it is in no order with these."""


class Progress(msgspec.Struct, array_like=True, gc=False):
    """How far a pass has come."""

    until: EventNo = EventNo(0)
    """Every result up to this event was looked at."""
    results: int = 0
    bytes: int = 0
    """Of the results that were let go, each counted for itself, also where two share theirs."""
    lost: int = 0
    lost_bytes: int = 0
    """Of these, the results whose bytes nobody else holds, because policy allows that."""


class Tombstone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stays of a record; a row of the table `tombstone`, whose key is that of the result's row."""

    event: EventNo
    task_id: TaskId
    height: Height
    leaf: int
    """Its place in the log of all results, which has digest, size and commitment."""


class Recent(msgspec.Struct):
    """The newest digests and the event that accepted each: what a reader of rows may have missed. Counted, not kept."""

    events: dict[Digest, EventNo] = {}
    floor: EventNo = EventNo(0)
    """Only later ones are sure to be here."""

    def note(self, digest: Digest, event: EventNo) -> None:
        self.events.pop(digest, None)  # else it would keep its old place
        self.events[digest] = event
        if len(self.events) > RECENT_MAX:
            for old in list(self.events)[: RECENT_MAX // 2]:
                self.floor = self.events.pop(old)


class Retaining(Resolving, Protocol):
    """What this station needs of the state."""

    passes: dict[str, Progress]
    kept_hot: dict[EventNo, str]
    kept_warm: dict[EventNo, str]
    """Results that a pass left behind, by the event that accepted them, and why."""
    leaving: dict[EventNo, EventNo]
    """Results after an event up to another whose hot bytes may still have to be deleted."""
    condemned: dict[Digest, EventNo]
    """Warm bytes that may still have to be deleted, and a result that had them: nobody may rely on them any more."""
    recent: Recent


def until(state: Retaining, pass_: Pass) -> EventNo:
    found = state.passes.get(pass_)
    return found.until if found is not None else EventNo(0)


def is_dropped(state: Retaining, pass_: Pass, event: EventNo) -> bool:
    """Whether this pass has let the result of that event go."""
    kept = {Pass.HOT: state.kept_hot, Pass.WARM: state.kept_warm}.get(pass_, {})
    return event <= until(state, pass_) and event not in kept
