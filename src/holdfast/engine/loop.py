"""The owner (ENG-001, ENG-002): decides commands in order, commits what piled up as one batch, then answers.

The way of a command reads top to bottom: `submit` → `_decide` → `_commit_forever` → `_seal` → journal → `_confirm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

import msgspec
import structlog

from holdfast.core import law
from holdfast.core.event import Attachment, Batch, Event, OwnershipTaken, Tip, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.state import State
from holdfast.core.values import Epoch, EventNo
from holdfast.engine.history import History
from holdfast.engine.outcome import Accepted, Outcome, Phase
from holdfast.engine.project import Images, Projector, RowKey, take_images
from holdfast.engine.read import Standing
from holdfast.engine.recover import Recovered, recover
from holdfast.engine.stir import Stir
from holdfast.engine.tail import Tail
from holdfast.engine.timekeeper import Timekeeper
from holdfast.ports import Clock, Files, Journal, Row, Tables

T = TypeVar("T")
GATHER_TURNS: Final = 4
"""Turns of the event loop that a batch waits for callers who are just being answered; no clock is involved."""
TURN_COMMANDS: Final = 256
"""How many commands of a bulk are decided before others get a turn."""
RETRY_MS_FIRST, RETRY_MS_MAX = 100, 5_000
DRAIN_S: Final = 30.0
"""How long a stop waits for the tables."""
_log = structlog.get_logger()


class Standby(Protocol):
    """Somebody who has followed the journal so far (engine.follower)."""

    async def catch_up(self) -> Recovered | None:
        """All there is to know up to the journal's end, without loading; None where that is not possible."""
        ...


class _Open(msgspec.Struct):
    """The batch that is being filled."""

    time_ms: int = 0
    events: list[Event] = []
    attachments: list[Attachment] = []
    waiters: list[asyncio.Future[None]] = []


class Engine:
    """One owner of one journal. All methods belong to one event loop."""

    # What belongs to one ownership and is thrown away with it (`_reset`):
    state: State
    durable: Tip
    history: History
    projector: Projector
    _epoch: Epoch
    _time: Timekeeper
    _open: _Open
    _in_flight: list[asyncio.Future[None]] | None

    def __init__(
        self,
        journal: Journal,
        tables: Tables,
        files: Files,
        clock: Clock,
        policy: Policy,
        owner: str = "node",
        door: str = "",
    ) -> None:
        self.policy = policy
        self._events_max = policy.engine.batch_events_max
        self._answered = 0
        self.journal, self.tables = journal, tables
        self._files, self._clock, self._owner, self._door = files, clock, owner, door
        self.phase = Phase.STOPPED
        self.fault: Exception | None = None
        self.tail = Tail(journal)
        self.stirred = Stir()
        """Raised whenever something was decided, before it is durable: what follows from it can share its batch."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._is_stop_asked = False
        self._task: asyncio.Task[None] | None = None
        self._reset(State(policy), Tip(), Epoch(0), History(tables), Tip())

    # ------------------------------------------------------------------------------------ life

    async def start(self, standby: Standby | None = None) -> None:
        """Take ownership, recover (or take what a standby has folded), announce the epoch; raises what prevents it."""
        self.phase, self.fault = Phase.RECOVERING, None
        try:
            await self._take_over(standby)
        except Exception as fault:
            self._fail(fault)
            raise
        self._task = asyncio.create_task(self._commit_forever(), name="engine")

    async def stop(self) -> None:
        """Commit and project what was accepted, refuse the rest, let go of nothing unfinished."""
        self._is_stop_asked = True
        if self.phase is Phase.RUNNING:
            self.phase = Phase.STOPPING
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self.phase is Phase.STOPPING:
            with suppress(TimeoutError):  # tables that cannot be written are brought up to date at the next start
                async with asyncio.timeout(DRAIN_S):
                    await self.projector.drain()
            self.phase = Phase.STOPPED
        await self.projector.stop()
        self.tail.close()

    async def wait_ended(self) -> None:
        """Return when the owner stopped; raise what made it fail."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self.fault is not None:
            raise self.fault

    # ------------------------------------------------------------------------------------ commands

    async def submit(self, command: law.Command) -> Outcome:
        """Decide, make durable, answer. Unavailable means: outcome not known, ask again with the same id."""
        outcome = self._decide_now(command) or await self._decide_later(command)
        await self._durable()
        return outcome

    async def submit_many(self, commands: Iterable[law.Command]) -> list[Outcome]:
        """The same for many commands with one answer; each is refused or accepted on its own."""
        outcomes: list[Outcome] = []
        waits: list[asyncio.Future[None]] = []
        for command in commands:
            if (outcome := self._decide_now(command)) is not None:
                outcomes.append(outcome)
            else:
                waits.append(self._durable())
                outcomes.append(await self._decide_later(command))
            if len(outcomes) % TURN_COMMANDS == 0:
                waits.append(self._durable())
                await asyncio.sleep(0)
        await asyncio.gather(*waits, self._durable())
        return outcomes

    async def submit_together(self, commands: Sequence[law.Command]) -> list[Outcome]:
        """All in one batch, in order; where the first is refused or a repeat, the others are not decided at all."""
        first = self._decide_now(commands[0]) or await self._decide_later(commands[0])
        outcomes = [first]
        if isinstance(first, Accepted) and not first.is_repeat:
            outcomes += [self._decide(command) for command in commands[1:]]
        await self._durable()
        return outcomes

    async def ask(self, question: Callable[[State], T]) -> T:
        """Answer a question from memory, once everything it could have seen is durable."""
        self._check_running()
        answer = question(self.state)
        await self._durable()
        return answer

    def peek(self, key: RowKey) -> Row | None:
        """A row that is durable but perhaps not in the tables yet."""
        return self.projector.peek(key)

    def now_ms(self) -> int:
        """The time as the next batch would have it (CAN-004)."""
        return max(self._time.now_ms(), self.durable.time_ms)

    def standing(self) -> Standing:
        return Standing("owner", self.phase, self.durable, self.projector.checkpoint.last)

    def _decide_now(self, command: law.Command) -> Outcome | None:
        """The decision, or None where it must wait for room or for an old claim."""
        if len(self._open.events) >= self._events_max or self.projector.is_full:
            return None
        key = law.claim_key(self.state, command)
        if key is not None and self.history.must_recall(self.state, key):
            return None
        return self._decide(command)

    async def _decide_later(self, command: law.Command) -> Outcome:
        """Wait for room and for old claims to be recalled, then decide without letting anybody in between."""
        while True:
            self._check_running()
            if self._is_full():
                self._room.clear()
                await self._room.wait()
                continue
            state = self.state
            key = law.claim_key(state, command)
            if key is not None and self.history.must_recall(state, key):
                await self.history.recall(state, key)
            if state is self.state and not self._is_full():
                return self._decide(command)

    def _decide(self, command: law.Command) -> Outcome:
        self._check_running()
        batch, state = self._open, self.state
        if not batch.events:
            batch.time_ms = self.now_ms()
        decided = law.decide(state, command, batch.time_ms)
        if isinstance(decided, Refused):
            return decided
        if decided.since is not None:
            return Accepted(decided.since, is_repeat=True)
        fact, number = decided.events[decided.preface], EventNo(state.last_event + 1 + decided.preface)
        self._apply(decided.events)
        batch.events += decided.events
        if decided.attachments:
            batch.attachments += decided.attachments
        self._wake.set()
        self.stirred()
        return Accepted(number, fact=fact)

    def _apply(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                law.apply(self.state, event)
        except Exception as fault:  # half-applied memory is worth nothing
            self._fail(
                fault if isinstance(fault, Corrupt) else Corrupt("ENG-001", f"{event!r} could not be applied: {fault}")
            )
            raise self._why_not_running() from fault

    def _is_full(self) -> bool:
        return len(self._open.events) >= self._events_max or self.projector.is_full

    def _durable(self) -> asyncio.Future[None]:
        """A future that is done when everything now in memory is durable."""
        future: asyncio.Future[None] = asyncio.Future()
        if self._open.events:
            self._open.waiters.append(future)
        elif self._in_flight is not None:
            self._in_flight.append(future)
        else:
            future.set_result(None)
        return future

    # ------------------------------------------------------------------------------------ commit

    async def _commit_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._open.events and self.phase in (Phase.RUNNING, Phase.STOPPING):
                await self._gather()
                await self._commit()
            if self.phase is not Phase.RUNNING:
                return

    async def _gather(self) -> None:
        """Let callers who were just answered add their next command: else every second batch would hold one."""
        for _ in range(GATHER_TURNS):
            before = len(self._open.events)
            if len(self._open.waiters) >= self._answered:
                return  # everyone who was just answered is back
            await asyncio.sleep(0)
            if len(self._open.events) == before:
                return

    async def _commit(self) -> None:
        """Append one batch. There is never a second append in flight: the next batch fills up meanwhile."""
        try:
            batch, images, attachments, waiters = self._seal()
            self._in_flight = waiters
            await self.journal.append(batch, attachments)
        except (Fenced, Corrupt) as fault:
            self._fail(fault)
        except Exception as fault:
            await self._begin_again(fault)
        else:
            self._confirm(batch, images, waiters)

    def _seal(self) -> tuple[Batch, Images, Sequence[Attachment], list[asyncio.Future[None]]]:
        opened = self._open
        batch = law.pack(self.durable, self._epoch, opened.events, opened.time_ms)
        self._open = _Open()  # not before: who waits for what cannot be packed is found there and told
        return batch, take_images(self.state), opened.attachments, opened.waiters

    def _confirm(self, batch: Batch, images: Images, waiters: list[asyncio.Future[None]]) -> None:
        self.durable = tip_of(batch)
        self._in_flight = None
        self.projector.offer(images, self.durable)
        self.tail.add(batch)
        self._answered = len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not self._is_full():
            self._room.set()

    # ------------------------------------------------------------------------------------ ownership, failure

    async def _begin_again(self, fault: Exception) -> None:
        """ENG-002: discard memory and everything decided after the failed append, own and load anew."""
        _log.warning("the journal did not confirm: owning and loading anew", because=str(fault), epoch=self._epoch)
        self.phase = Phase.RECOVERING
        self._turn_away(Unavailable("ENG-002", f"the journal did not confirm: {fault}", _ASK_AGAIN))
        await self.projector.stop()
        delay_ms = RETRY_MS_FIRST
        while not self._is_stop_asked:
            try:
                return await self._take_over()
            except (Fenced, Corrupt) as final:
                return self._fail(final)
            except Exception as again:
                _log.info("not yet", because=str(again), again_in_ms=delay_ms)
                await self._clock.sleep(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
        return self._fail(fault)

    async def _take_over(self, standby: Standby | None = None) -> None:
        """Own the journal, fold what is there, and put an epoch batch between us and any owner before us."""
        await self.journal.own()
        found = await standby.catch_up() if standby is not None else None
        if found is None:
            found = await recover(self.journal, self.tables, self._files, self.policy)
        self._check_nothing_lost(found.tip)
        epoch = Epoch(found.tip.epoch + 1)
        time = Timekeeper(self._clock, found.tip.time_ms)
        now_ms = time.now_ms()
        outage_ms = now_ms - found.tip.time_ms if found.tip.number else 0
        event = OwnershipTaken(epoch, self._owner, self._door, outage_ms, now_ms)
        batch = law.pack(found.tip, epoch, [event], now_ms)
        await self.journal.append(batch, ())
        law.apply(found.state, event)
        self._time = time
        self._reset(found.state, tip_of(batch), epoch, found.history, found.checkpoint)
        self.projector.offer(found.images, found.tip)
        self.projector.offer(take_images(self.state), self.durable)
        self.projector.start()
        self.tail.begin(found.tip)
        self.tail.add(batch)
        self.phase = Phase.RUNNING
        self.stirred()

    def _check_nothing_lost(self, found: Tip) -> None:
        """What this owner confirmed before must still be there: a journal that forgets is never built upon."""
        if found.number < self.durable.number:
            raise Corrupt(
                "ENG-002",
                f"the journal ends at batch {found.number}, but batch {self.durable.number} was confirmed",
                "the disk or database lost a synced write: restore from a backup before going on",
            )

    def _reset(self, state: State, durable: Tip, epoch: Epoch, history: History, checkpoint: Tip) -> None:
        self.state, self.durable, self._epoch, self.history = state, durable, epoch, history
        self._open = _Open()
        self._in_flight = None
        rows_max = self.policy.engine.projection_rows_max
        self.projector = Projector(self.tables, self._clock, rows_max, checkpoint, self._let_claims_go, self._fail)

    def _let_claims_go(self, claims: Iterable[tuple[bytes, object]]) -> None:
        self.history.hand_over(self.state, (key for key, _ in claims))
        self._room.set()

    def _fail(self, fault: Exception) -> None:
        self.phase, self.fault = Phase.FAILED, fault
        self._turn_away(self._why_not_running())
        self.tail.close()
        self._wake.set()

    def _turn_away(self, fault: Unavailable) -> None:
        """Tell everybody who waits; nobody is told success wrongly, and nobody waits for ever."""
        waiters = [*(self._in_flight or ()), *self._open.waiters]
        self._open, self._in_flight = _Open(), None
        self._room.set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(fault)
                waiter.exception()  # seen: a caller that went away leaves no warning behind

    def _check_running(self) -> None:
        if self.phase is not Phase.RUNNING:
            raise self._why_not_running()

    def _why_not_running(self) -> Unavailable:
        if isinstance(self.fault, Fenced):
            return Fenced("ENG-001", self.fault.says, self.fault.hint)
        if self.fault is not None:
            return Unavailable("ENG-002", f"the node failed: {self.fault}", "see its log; nothing confirmed is lost")
        return Unavailable("ENG-002", f"the node is {self.phase}", _ASK_AGAIN)


_ASK_AGAIN: Final = "ask again with the same id: it is done at most once"
