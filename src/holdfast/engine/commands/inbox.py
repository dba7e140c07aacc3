"""Commands that wait for their decision: by caller in order, gathered over callers into runs of one type."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.core.base.event import Command
from holdfast.core.base.height_bound import AtHeight
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.chain.messages import RollBackBlocks, SealBlock
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.state_machine import COMMAND_RUNS
from holdfast.engine.outcome import Outcome

BARRIERS: Final = frozenset({SealBlock, RollBackBlocks, AdoptPolicy, PrivilegedCommand, AtHeight})
"""Commands that no other caller's later command is decided before."""


class Submission:
    """The commands of one call, decided in their order. The caller is answered when all of them are durable."""

    __slots__ = ("absent", "absent_as_of", "answered", "commands", "is_atomic", "is_barrier", "outcomes")

    def __init__(self, commands: Sequence[Command], *, is_atomic: bool = False) -> None:
        self.commands, self.is_atomic = commands, is_atomic
        self.outcomes: list[Outcome] = []
        self.answered: asyncio.Future[list[Outcome]] = asyncio.Future()
        self.is_barrier = not BARRIERS.isdisjoint(map(type, commands))
        self.absent: tuple[bytes, ...] = ()
        """Claims of its next command that the tables were found not to have."""
        self.absent_as_of = 0
        """The batch as of which they were absent."""

    @property
    def is_decided(self) -> bool:
        return len(self.outcomes) == len(self.commands)

    def next_of(self, type_: type, limit: int) -> Sequence[Command]:
        """Its next commands, as far as they are of this type."""
        at = end = len(self.outcomes)
        last = min(len(self.commands), at + limit)
        while end < last and type(self.commands[end]) is type_:
            end += 1
        return self.commands[at:end]

    def answer(self) -> None:
        if not self.answered.done():
            self.answered.set_result(self.outcomes)

    def fail(self, fault: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(fault)
            self.answered.exception()  # marks it as retrieved: a caller that went away leaves no warning


Run = list[tuple[Submission, Sequence[Command]]]
"""Commands of one type: of each submission the next ones."""


class Inbox:
    """Submissions in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[Submission] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, submission: Submission) -> None:
        self._waiting.append(submission)

    def put_first(self, submission: Submission) -> None:
        self._waiting.appendleft(submission)

    def first(self) -> Submission | None:
        """The next submission; those whose caller has gone away are dropped, with what is not decided of them."""
        while self._waiting:
            if not self._waiting[0].answered.done():
                return self._waiting[0]
            self._waiting.popleft()
        return None

    def remove(self, submission: Submission) -> None:
        if self._waiting[0] is submission:
            self._waiting.popleft()
        else:
            self._waiting.remove(submission)

    def rotate(self) -> None:
        """The first one, which has had its turn, waits behind the others."""
        if len(self._waiting) > 1 and not self._waiting[0].is_barrier:
            self._waiting.rotate(-1)

    def next_run(self, limit: int) -> Run:
        """The next commands of the first submission, and those of the same type that others have next.

        Commands of different callers are gathered only up to a barrier. What is not decided by the run, or knows that
        claims are absent, is taken alone.
        """
        first = self._waiting[0]
        type_ = type(first.commands[len(first.outcomes)])
        if type_ not in COMMAND_RUNS or first.absent:
            return [(first, first.next_of(type_, 1))]
        run: Run = []
        for submission in self._gathered(first):
            if commands := submission.next_of(type_, limit):
                run.append((submission, commands))
                limit -= len(commands)
            if not limit:
                break
        return run

    def _gathered(self, first: Submission) -> Iterator[Submission]:
        yield first
        if first.is_barrier:
            return
        for submission in self._waiting:
            if submission.is_barrier:
                return
            is_open = not (submission.is_atomic or submission.absent or submission.answered.done())
            if submission is not first and is_open:
                yield submission

    def fail_all(self, fault: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for submission in waiting:
            submission.fail(fault)
