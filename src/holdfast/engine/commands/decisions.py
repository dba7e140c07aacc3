"""Decides what waits in the inbox, every turn of the event loop, run by run; its events go into the open batch.

The journal is not touched here: `loop` commits the open batch and answers whoever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol

import msgspec

from holdfast.core import state_machine
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.event import Attachment, Command, Decided, Event, NeedsClaims
from holdfast.core.base.values import EventNo
from holdfast.core.state import State
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.commands.inbox import Inbox, PendingCommands, Run
from holdfast.engine.outcome import Accepted, Outcome

COMMANDS_PER_TURN: Final = 256
"""How many commands are decided before others get a turn of the event loop."""
ATTACHED_BYTES_MAX: Final = 2 << 20
"""Of payloads beside a batch that is full: everybody in it waits until the disk has them all."""


class OpenBatch(msgspec.Struct):
    """The batch that is being filled."""

    time_ms: int = 0
    events: list[Event] = []
    attachments: list[Attachment] = []
    attached_bytes: int = 0
    waiters: list[PendingCommands] = []

    @property
    def is_full(self) -> bool:
        return self.attached_bytes >= ATTACHED_BYTES_MAX


class Owner(Protocol):
    """What a decision needs of the owner of the journal."""

    undurable_state: State
    claim_index: ClaimIndex
    open_batch: OpenBatch

    @property
    def room(self) -> int:
        """How many events may be added now; 0 where commands have to wait, or nothing is decided at all."""
        ...

    def must_wait(self, command: Command) -> bool:
        """Whether this command waits until the tables have caught up."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing is decided that is not durable."""
        ...

    def now_ms(self) -> int: ...

    def answer_when_durable(self, pending: PendingCommands) -> None: ...

    def on_decided(self) -> None: ...

    def on_not_applied(self, fault: Corrupt) -> Unavailable:
        """Memory that is half applied cannot be used any more."""
        ...


class Decisions:
    """The inbox and the turns in which it is decided."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._inbox = Inbox()
        self._loading: dict[asyncio.Task[None], PendingCommands] = {}
        """Calls that wait for claims."""
        self._held: list[PendingCommands] = []
        """Calls whose next command waits for the tables."""
        self._is_scheduled = False
        self.arrivals = 0
        """How many calls have arrived."""

    @property
    def is_waiting(self) -> bool:
        return bool(self._inbox)

    def put(self, pending: PendingCommands) -> None:
        """A command that finds the owner idle is decided at once; the others wait for the next turn."""
        self.arrivals += 1
        is_first = not self._inbox
        self._inbox.put(pending)
        if is_first and self._owner.is_idle:
            self.take_turn()
        else:
            self.schedule()

    def schedule(self) -> None:
        """Decide at the next turn of the event loop: until then more callers add to it."""
        if self._inbox and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._is_scheduled = False
        self.take_turn()

    def take_turn(self, limit: int = COMMANDS_PER_TURN) -> None:
        while limit > 0 and (room := self._owner.room) and (first := self._inbox.first()) is not None:
            if not first.is_atomic and self._owner.must_wait(first.commands[len(first.outcomes)]):
                self._inbox.remove(first)
                self._held.append(first)
                continue
            try:
                limit -= self._decide_group(first) if first.is_atomic else self._decide_next_run(min(limit, room))
            except Unavailable:  # the owner has failed, and everyone was told
                return
        if self._inbox and self._owner.room:
            self._inbox.rotate()
            self.schedule()

    def release_held(self) -> None:
        """The tables have caught up a little: who waited for them is decided first."""
        held, self._held = self._held, []
        for pending in reversed(held):
            self._inbox.put_first(pending)
        if held:
            self.schedule()

    def fail_all(self, fault: Exception) -> None:
        self._inbox.fail_all(fault)
        held, self._held = self._held, []
        for pending in (*self._loading.values(), *held):
            pending.fail(fault)

    # ------------------------------------------------------------------------------------ runs

    def _decide_next_run(self, limit: int) -> int:
        """Decide the next run of commands and give out the answers; returns how many."""
        run = self._inbox.next_run(limit)
        try:
            return self._decide_run(run)
        except Unavailable:
            raise
        except Exception as fault:  # a fault of the program: it is the answer to the command that shows it
            if len(run) > 1 or len(run[0][1]) > 1:
                return self._decide_next_run(1)
            self._inbox.remove(run[0][0])
            run[0][0].fail(fault)
            return 1

    def _decide_run(self, run: Run) -> int:
        commands = [command for _, some in run for command in some] if len(run) > 1 else run[0][1]
        first = run[0][0]
        if first.absent:
            with self._absent_claims(first):
                answers = self._decide(commands)
        else:
            answers = self._decide(commands)
        left = iter(answers)
        for pending, some in run:
            for outcome in islice(left, len(some)):
                if isinstance(outcome, NeedsClaims):
                    self._load_claims(pending, outcome.keys)
                else:
                    pending.outcomes.append(outcome)
            if pending.is_decided:
                self._inbox.remove(pending)
                self._owner.answer_when_durable(pending)
        return len(answers)

    def _decide_group(self, group: PendingCommands) -> int:
        """The members follow an accepted, new head at once: all their events are in its batch, however many."""
        state, commands, outcomes = self._owner.undurable_state, group.commands, group.outcomes
        with self._absent_claims(group):
            keys = tuple(key for command in commands for key in state_machine.claim_keys(state, command))
            if lacking := state.claims.lacking(keys):
                self._load_claims(group, lacking)
                return 1
            outcomes += map(_known, self._decide(commands[:1]))
            if isinstance(outcomes[0], Accepted) and not outcomes[0].is_repeat:
                while not group.is_decided:
                    some = group.next_of(type(commands[len(outcomes)]), len(commands))
                    outcomes += map(_known, self._decide(some))
        self._inbox.remove(group)
        self._owner.answer_when_durable(group)
        return len(outcomes)

    def _decide(self, commands: Sequence[Command]) -> list[Outcome | NeedsClaims]:
        """Decide the first of these commands of one type, as many as make a run, and apply their events."""
        batch, state = self._owner.open_batch, self._owner.undurable_state
        if not batch.events:
            batch.time_ms = self._owner.now_ms()
        events, outcomes, number = list[Event](), list[Outcome | NeedsClaims](), state.last_event + 1
        for answer in state_machine.decide_run(state, commands, batch.time_ms):
            if not isinstance(answer, Decided):
                outcomes.append(answer)
            elif answer.repeat_of is not None:
                outcomes.append(Accepted(answer.repeat_of, is_repeat=True))
            else:
                at = answer.answer_index
                outcomes.append(Accepted(EventNo(number + len(events) + at), False, answer.events[at]))
                events += answer.events
                for attachment in answer.attachments:
                    batch.attachments.append(attachment)
                    batch.attached_bytes += len(attachment.raw)
        if events:
            self._apply(events)
            batch.events += events
            self._owner.on_decided()
        return outcomes

    def _apply(self, events: Sequence[Event]) -> None:
        try:
            state_machine.apply_all(self._owner.undurable_state, events)
        except Exception as fault:
            at = self._owner.undurable_state.last_event
            cause = (
                fault if isinstance(fault, Corrupt) else Corrupt("ENG-001", f"event {at} cannot be applied: {fault}")
            )
            raise self._owner.on_not_applied(cause) from fault

    # ------------------------------------------------------------------------------------ claims

    @contextmanager
    def _absent_claims(self, pending: PendingCommands) -> Iterator[None]:
        """ENG-005: "absent" counts only if memory has dropped no claim since the tables were read."""
        claims = self._owner.undurable_state.claims
        if pending.absent and self._owner.claim_index.covers(pending.absent_as_of):
            claims.absent = pending.absent
        pending.absent = ()
        try:
            yield
        finally:
            claims.absent = ()

    def _load_claims(self, pending: PendingCommands, keys: tuple[bytes, ...]) -> None:
        """The call leaves the inbox, with its later commands, until the claims it depends on are loaded."""
        self._inbox.remove(pending)
        loading = asyncio.create_task(self._return_with_claims(pending, keys))
        self._loading[loading] = pending
        loading.add_done_callback(self._loading.pop)

    async def _return_with_claims(self, pending: PendingCommands, keys: tuple[bytes, ...]) -> None:
        owner = self._owner
        try:
            pending.absent_as_of = await owner.claim_index.load(owner.undurable_state, keys)
        except Exception as fault:
            pending.fail(fault)
            return
        pending.absent = keys
        self._inbox.put_first(pending)
        self.schedule()


def _known(outcome: Outcome | NeedsClaims) -> Outcome:
    """Nothing is awaited inside a group: what depends on claims of an earlier member of it can be submitted again."""
    if not isinstance(outcome, NeedsClaims):
        return outcome
    return Refused("ENG-005", "whether this id was used before is not known yet", "submit it again, alone")
