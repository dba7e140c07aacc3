"""A lease in the agent's hands: how far it is, what the node said of it, and when it is to be renewed."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from holdfast.agent.work import Found, Outcome, Taken


class Word(StrEnum):
    """What the node says of a lease."""

    LIVES = "lives"
    SUBMITTED = "submitted"
    """It has the result and will say what it thinks of it."""


class End(msgspec.Struct, frozen=True):
    """Why a lease is over."""

    how: str
    """VERDICT, LOST, FAILED, GIVEN_BACK."""
    reason: str = ""


class Told(msgspec.Struct, frozen=True):
    """A record of ours: where it is spooled."""

    session: str
    sequence: int


class Marks(msgspec.Struct, frozen=True):
    """What an offer says of time, by the node's clock."""

    time_ms: int
    renew_by_ms: int
    t_deadline_ms: int
    renewals: int


class Held:
    """One lease, from the moment it is on disk until nothing of it is needed any more."""

    def __init__(self, taken: Taken, *, has_output: bool = False, outcome: Outcome | None = None) -> None:
        self.taken = taken
        self.has_output, self.outcome = has_output, outcome
        self.told: Told | None = None
        """Where its outcome is spooled."""
        self.is_telling = False
        """Its outcome is on its way into the spool, and the fence behind it."""
        self.is_kept = False
        """Its offer is on disk."""
        self.is_resumed = False
        """It was found on disk: an earlier process had it."""
        self.is_in_doubt = False
        """That process may have spooled the outcome, or died before."""
        self.word: asyncio.Future[Word] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.renewals = 0
        self.renew_due_ms: int | None = None
        """By our monotonic clock; None while nothing is known, or nothing more can be had."""
        self._interval_ms = 0
        self.begun_ms = 0

    @classmethod
    def resumed(cls, found: Found) -> Held:
        held = cls(found.taken, has_output=found.has_output, outcome=found.outcome)
        held.is_kept = held.is_resumed = True
        held.is_in_doubt = found.outcome is not None
        return held

    @property
    def id(self) -> bytes:
        return self.taken.lease_id

    @property
    def is_working(self) -> bool:
        """It takes a slot: its outcome is not decided."""
        return self.outcome is None and not self.ended.done()

    @property
    def is_untold(self) -> bool:
        """Its outcome is not spooled: the lease is to be kept alive."""
        return self.told is None and not self.ended.done()

    def hear(self, word: Word) -> None:
        """The node knows the lease."""
        if not self.word.done():
            self.word.set_result(word)

    def end(self, how: str, reason: str = "") -> None:
        """The first end counts."""
        if not self.ended.done():
            self.ended.set_result(End(how, reason))

    def mark(self, marks: Marks, now_ms: int) -> None:
        """Renew a little before the mark: after it the node counts the renewal as late (LEA-004)."""
        span = max(1, marks.t_deadline_ms - marks.renew_by_ms)
        self.renewals, self._interval_ms = marks.renewals, span
        self.renew_due_ms = now_ms + marks.renew_by_ms - marks.time_ms - span // 8

    def renewed(self, renewal: int, now_ms: int) -> None:
        """The next one is due after the time between the two marks: at most what a renewal gives."""
        self.renewals = max(self.renewals, renewal)
        self.renew_due_ms = now_ms + self._interval_ms
