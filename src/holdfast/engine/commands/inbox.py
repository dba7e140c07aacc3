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

BARRIERS: Final = frozenset({SealBlock, RollBackBlocks, AdoptPolicy, AtHeight})
"""Commands that no other caller's later command is decided before."""


def _kind_of(command: Command) -> type:
    return type(command.command) if isinstance(command, PrivilegedCommand) else type(command)


class PendingCommands:
    """The commands of one call, decided in their order. The caller is answered when all of them are durable."""

    __slots__ = ("absent", "absent_as_of", "answered", "commands", "is_atomic", "is_barrier", "outcomes")

    def __init__(self, commands: Sequence[Command], *, is_atomic: bool = False) -> None:
        self.commands, self.is_atomic = commands, is_atomic
        self.outcomes: list[Outcome] = []
        self.answered: asyncio.Future[list[Outcome]] = asyncio.Future()
        self.is_barrier = not BARRIERS.isdisjoint(map(_kind_of, commands))
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


Run = list[tuple[PendingCommands, Sequence[Command]]]
"""Commands of one type: of each call the next ones."""


class Inbox:
    """Calls in the order of their arrival."""

    def __init__(self) -> None:
        self._waiting: deque[PendingCommands] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, pending: PendingCommands) -> None:
        self._waiting.append(pending)

    def put_first(self, pending: PendingCommands) -> None:
        self._waiting.appendleft(pending)

    def first(self) -> PendingCommands | None:
        """The next call; those whose caller has gone away are dropped, with what is not decided of them."""
        while self._waiting:
            if not self._waiting[0].answered.done():
                return self._waiting[0]
            self._waiting.popleft()
        return None

    def remove(self, pending: PendingCommands) -> None:
        if self._waiting[0] is pending:
            self._waiting.popleft()
        else:
            self._waiting.remove(pending)

    def rotate(self) -> None:
        """The first one, which has had its turn, waits behind the others."""
        if len(self._waiting) > 1 and not self._waiting[0].is_barrier:
            self._waiting.rotate(-1)

    def next_run(self, limit: int) -> Run:
        """The next commands of the first call, and those of the same type that others have next.

        Commands of different callers are gathered only up to a barrier. What is not decided by the run, or knows that
        claims are absent, is taken alone.
        """
        first = self._waiting[0]
        type_ = type(first.commands[len(first.outcomes)])
        if type_ not in COMMAND_RUNS or first.absent:
            return [(first, first.next_of(type_, 1))]
        run: Run = []
        for pending in self._gathered(first):
            if commands := pending.next_of(type_, limit):
                run.append((pending, commands))
                limit -= len(commands)
            if not limit:
                break
        return run

    def _gathered(self, first: PendingCommands) -> Iterator[PendingCommands]:
        yield first
        if first.is_barrier:
            return
        for pending in self._waiting:
            if pending.is_barrier:
                return
            is_open = not (pending.is_atomic or pending.absent or pending.answered.done())
            if pending is not first and is_open:
                yield pending

    def fail_all(self, fault: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.fail(fault)
