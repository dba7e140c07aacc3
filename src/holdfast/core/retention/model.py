"""Retention as the state keeps it: the position of each pass (RET-002), skipped results, pending deletions."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.values import Digest, EventNo, Height, TaskId
from holdfast.core.result.model import HasResults

SKIPPED_MAX: Final = 10_000
"""How many results a pass may skip; then it stops until an operator has found the cause."""
REQUESTED_MEANWHILE: Final = "these bytes were requested while their deletion was pending"
"""Why a result that pass 2 has dropped and counted is skipped again."""
RECENT_DIGESTS_MAX: Final = 16_384
"""Some seconds of results, at 140 bytes each; a pass that read its rows before the first of them reads again."""


class Pass(StrEnum):
    """The passes in their order: a result is in a pass only after all passes above it."""

    HOT = "hot"
    """Bytes leave the store."""
    WARM = "warm"
    """Bytes leave the disk."""
    RECORDS = "records"
    """A tombstone replaces the record."""
    AUDIT = "audit"
    """The tombstone is deleted; the leaf of the log stays for ever."""
    ORPHANS = "orphans"
    """Files that belong to no result leave the disk; independent of the passes above."""


class PassProgress(msgspec.Struct, array_like=True, gc=False):
    """The position and the totals of a pass."""

    until: EventNo = EventNo(0)
    """Every result up to this event was processed."""
    results: int = 0
    bytes: int = 0
    """Of the dropped results; bytes that several results share are counted for each."""
    lost: int = 0
    lost_bytes: int = 0
    """Of these, the results with bytes that are in no archive; policy allows the loss."""


class Tombstone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stays of a record; a row of the table `tombstone` under the key of the result's row."""

    event: EventNo
    task_id: TaskId
    height: Height
    leaf: int
    """Its index in the log of all results, which has digest, size and commitment."""


class RecentDigests(msgspec.Struct):
    """The newest digests and the event that accepted each: rows that were read before may not have them. Not stored."""

    newer: dict[Digest, EventNo] = {}
    older: dict[Digest, EventNo] = {}
    """They leave memory together: a dict that loses its first keys takes thrice the room."""
    complete_after: EventNo = EventNo(0)
    """Digests of later events are all here."""

    def add(self, digest: Digest, event: EventNo) -> None:
        if len(self.newer) == RECENT_DIGESTS_MAX // 2:
            self.complete_after = max(self.older.values(), default=self.complete_after)
            self.older, self.newer = self.newer, {}
        self.newer[digest] = event

    def event_of(self, digest: Digest) -> EventNo:
        """The newest event that accepted it; 0 where none is known."""
        return self.newer.get(digest) or self.older.get(digest, EventNo(0))


class HasRetention(HasResults, Protocol):
    """The parts of the state that this domain reads and changes."""

    retention_progress: dict[str, PassProgress]
    skipped_hot: dict[EventNo, str]
    skipped_warm: dict[EventNo, str]
    """Results that a pass skipped, by the event that accepted them, and why."""
    hot_deletes_pending: dict[EventNo, EventNo]
    """Ranges of results (after, until) with hot bytes that may still have to be deleted."""
    warm_deletes_pending: dict[Digest, EventNo]
    """Warm bytes that may still have to be deleted, and a result that had them: nothing may rely on them any more."""
    recent_digests: RecentDigests


def pass_position(state: HasRetention, pass_: Pass) -> EventNo:
    """Every result up to this event was in the pass."""
    progress = state.retention_progress.get(pass_)
    return progress.until if progress is not None else EventNo(0)


def is_dropped(state: HasRetention, pass_: Pass, event: EventNo) -> bool:
    """Whether this pass has dropped the result of that event."""
    skipped = {Pass.HOT: state.skipped_hot, Pass.WARM: state.skipped_warm}.get(pass_, {})
    return event <= pass_position(state, pass_) and event not in skipped
