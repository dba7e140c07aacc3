"""The owner (ENG-001, ENG-002): decides commands in order, commits those that have accumulated as one batch, answers.

The way of a command reads top to bottom: `submit` → `_decide` → `_commit_forever` → `_seal` → journal → `_confirm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
import structlog

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.base.event import Attachment, Batch, Command, Event, JournalHead, OwnershipTaken, head_of
from holdfast.core.base.values import BatchNo, EventNo, Term
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.batch_clock import BatchClock
from holdfast.engine.change_signal import ChangeSignal
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.event_stream import EventStream
from holdfast.engine.invariants import check_commit
from holdfast.engine.outcome import Accepted, EngineStatus, Outcome
from holdfast.engine.projector import Images, Projector, RowKey, take_images
from holdfast.engine.queries import Query, ReplicationStatus
from holdfast.engine.queries.table import answer
from holdfast.engine.recover import Standby, check_nothing_lost, recover
from holdfast.ports import Clock, Files, Journal, Row, Tables

T = TypeVar("T")
YIELD_TURNS: Final = 4
"""Turns of the event loop that a batch waits for callers who are just being answered; no clock is involved."""
COMMANDS_PER_TURN: Final = 256
"""How many commands of a bulk are decided before others get a turn."""
RETRY_MS_FIRST, RETRY_MS_MAX = 100, 5_000
DRAIN_S: Final = 30.0
"""How long a stop waits for the tables."""
_log = structlog.get_logger()


class _OpenBatch(msgspec.Struct):
    """The batch that is being filled."""

    time_ms: int = 0
    events: list[Event] = []
    attachments: list[Attachment] = []
    waiters: list[asyncio.Future[None]] = []


class Engine:
    """One owner of one journal. All methods belong to one event loop."""

    # What belongs to one ownership and is replaced with the next one (`_reset`):
    undurable_state: State
    durable_head: JournalHead
    claim_index: ClaimIndex
    projector: Projector
    _term: Term
    _batch_clock: BatchClock
    _open_batch: _OpenBatch
    _in_flight: list[asyncio.Future[None]] | None

    def __init__(
        self,
        journal: Journal,
        tables: Tables,
        files: Files,
        clock: Clock,
        policy: Policy,
        owner: str = "node",
        address: str = "",
    ) -> None:
        self.policy = policy
        self._events_max = policy.engine.batch_events_max
        self._answered_last = 0
        self.journal, self.tables = journal, tables
        self._files, self._clock, self._owner, self._address = files, clock, owner, address
        self.status = EngineStatus.STOPPED
        self.fault: Exception | None = None
        self.event_stream = EventStream(journal)
        self.changed = ChangeSignal()
        """Notified whenever something was decided, before it is durable: what follows from it can share its batch."""
        self._wake = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._is_stop_requested = False
        self._task: asyncio.Task[None] | None = None
        self._reset(State(policy), JournalHead(), Term(0), ClaimIndex(tables), JournalHead())

    # ------------------------------------------------------------------------------------ life

    async def start(self, standby: Standby | None = None) -> None:
        """Take ownership, recover (or take what a standby has folded), record the new term; raises what prevents it."""
        self.status, self.fault = EngineStatus.RECOVERING, None
        try:
            await self._take_over(standby)
        except Exception as fault:
            self._fail(fault)
            raise
        self._task = asyncio.create_task(self._commit_forever(), name="engine")

    async def stop(self) -> None:
        """Commit and project what was accepted, refuse the rest."""
        self._is_stop_requested = True
        if self.status is EngineStatus.RUNNING:
            self.status = EngineStatus.STOPPING
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self.status is EngineStatus.STOPPING:
            with suppress(TimeoutError):  # tables that cannot be written now catch up at the next start
                async with asyncio.timeout(DRAIN_S):
                    await self.projector.drain()
            self.status = EngineStatus.STOPPED
        await self.projector.stop()
        self.event_stream.close()

    async def wait_ended(self) -> None:
        """Return when the owner stopped; raise what made it fail."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self.fault is not None:
            raise self.fault

    # ------------------------------------------------------------------------------------ commands

    async def submit(self, command: Command) -> Outcome:
        """Decide, make durable, answer. Unavailable means that the outcome is not known: submit the same id again."""
        outcome = self._try_decide(command) or await self._decide_when_ready(command)
        await self._wait_durable()
        return outcome

    async def submit_many(self, commands: Iterable[Command]) -> list[Outcome]:
        """The same for many commands with one answer; each is refused or accepted on its own."""
        outcomes: list[Outcome] = []
        waits: list[asyncio.Future[None]] = []
        for command in commands:
            if (outcome := self._try_decide(command)) is not None:
                outcomes.append(outcome)
            else:
                waits.append(self._wait_durable())
                outcomes.append(await self._decide_when_ready(command))
            if len(outcomes) % COMMANDS_PER_TURN == 0:
                waits.append(self._wait_durable())
                await asyncio.sleep(0)
        await asyncio.gather(*waits, self._wait_durable())
        return outcomes

    async def submit_atomic(self, commands: Sequence[Command]) -> list[Outcome]:
        """All in one batch, in order; if the first is refused or a repeat, the others are not decided at all."""
        first = self._try_decide(commands[0]) or await self._decide_when_ready(commands[0])
        outcomes = [first]
        if isinstance(first, Accepted) and not first.is_repeat:
            outcomes += [self._decide(command) for command in commands[1:]]
        await self._wait_durable()
        return outcomes

    async def query_durable(self, query: Query[T]) -> T:
        """Answer a query from memory, once everything it could have seen is durable."""
        self._check_running()
        result = answer(self.undurable_state, query)
        await self._wait_durable()
        return result

    def query_undurable(self, query: Query[T]) -> T:
        """The same without waiting: what the answer rests on is lost if the journal does not confirm it.

        Only for an answer that no client acts on before something durable follows: a metric, a wake-up, a check
        in front of a command, or a read whose result waits for a durable query.
        """
        return answer(self.undurable_state, query)

    def peek(self, key: RowKey) -> Row | None:
        """A row that is durable but perhaps not in the tables yet."""
        return self.projector.peek(key)

    def now_ms(self) -> int:
        """The time as the next batch would have it (CAN-004)."""
        return max(self._batch_clock.now_ms(), self.durable_head.time_ms)

    def replication_status(self) -> ReplicationStatus:
        return ReplicationStatus("owner", self.status, self.durable_head, self.projector.checkpoint.last, self.fault)

    def _try_decide(self, command: Command) -> Outcome | None:
        """The decision, or None where it must wait for capacity or for an old claim."""
        if self._is_full():
            return None
        key = state_machine.claim_key(self.undurable_state, command)
        if key is not None and self.claim_index.must_load(self.undurable_state, key):
            return None
        return self._decide(command)

    async def _decide_when_ready(self, command: Command) -> Outcome:
        """Wait for capacity and load old claims, then decide before anything else can run."""
        while True:
            self._check_running()
            if self._is_full():
                self._has_capacity.clear()
                await self._has_capacity.wait()
                continue
            state = self.undurable_state
            key = state_machine.claim_key(state, command)
            if key is not None and self.claim_index.must_load(state, key):
                await self.claim_index.load(state, key)
            if state is self.undurable_state and not self._is_full():
                return self._decide(command)

    def _decide(self, command: Command) -> Outcome:
        self._check_running()
        batch, state = self._open_batch, self.undurable_state
        if not batch.events:
            batch.time_ms = self.now_ms()
        decided = state_machine.decide(state, command, batch.time_ms)
        if isinstance(decided, Refused):
            return decided
        if decided.repeat_of is not None:
            return Accepted(decided.repeat_of, is_repeat=True)
        fact, number = decided.events[decided.answer_index], EventNo(state.last_event + 1 + decided.answer_index)
        self._apply(decided.events)
        batch.events += decided.events
        if decided.attachments:
            batch.attachments += decided.attachments
        self._wake.set()
        self.changed.notify()
        return Accepted(number, fact=fact)

    def _apply(self, events: Iterable[Event]) -> None:
        try:
            for event in events:
                state_machine.apply(self.undurable_state, event)
        except Exception as fault:  # memory that is half applied cannot be used any more
            self._fail(
                fault if isinstance(fault, Corrupt) else Corrupt("ENG-001", f"{event!r} could not be applied: {fault}")
            )
            raise self._why_not_running() from fault

    def _is_full(self) -> bool:
        return len(self._open_batch.events) >= self._events_max or self.projector.is_full

    def _wait_durable(self) -> asyncio.Future[None]:
        """A future that is done when everything now in memory is durable."""
        future: asyncio.Future[None] = asyncio.Future()
        if self._open_batch.events:
            self._open_batch.waiters.append(future)
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
            while self._open_batch.events and self.status in (EngineStatus.RUNNING, EngineStatus.STOPPING):
                await self._yield_to_callers()
                await self._commit()
            if self.status is not EngineStatus.RUNNING:
                return

    async def _yield_to_callers(self) -> None:
        """Let callers who were just answered add their next command: else every second batch would hold only one."""
        for _ in range(YIELD_TURNS):
            before = len(self._open_batch.events)
            if len(self._open_batch.waiters) >= self._answered_last:
                return  # everyone who was just answered is back
            await asyncio.sleep(0)
            if len(self._open_batch.events) == before:
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
            await self._recover(fault)
        else:
            self._confirm(batch, images, waiters)

    def _seal(self) -> tuple[Batch, Images, Sequence[Attachment], list[asyncio.Future[None]]]:
        opened = self._open_batch
        batch = journal_codec.pack(self.durable_head, self._term, opened.events, opened.time_ms)
        check_commit(self.durable_head, batch, self.undurable_state)
        self._open_batch = _OpenBatch()  # not before: if packing fails, the waiters are found there
        return batch, take_images(self.undurable_state), opened.attachments, opened.waiters

    def _confirm(self, batch: Batch, images: Images, waiters: list[asyncio.Future[None]]) -> None:
        self.durable_head = head_of(batch)
        self._in_flight = None
        self.projector.offer(images, self.durable_head)
        self.event_stream.add(batch)
        self._answered_last = len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if not self._is_full():
            self._has_capacity.set()

    # ------------------------------------------------------------------------------------ ownership, failure

    async def _recover(self, fault: Exception) -> None:
        """ENG-002: discard memory and what was decided after the failed append; acquire the journal and load again."""
        _log.warning("append_failed", reason=str(fault), term=self._term, hint="recovering from the journal")
        self.status = EngineStatus.RECOVERING
        self._fail_waiters(Unavailable("ENG-002", f"the journal did not confirm: {fault}", _RETRY_HINT))
        await self.projector.stop()
        delay_ms = RETRY_MS_FIRST
        while not self._is_stop_requested:
            try:
                return await self._take_over()
            except (Fenced, Corrupt) as final:
                return self._fail(final)
            except Exception as again:
                _log.info("recovery_failed", reason=str(again), retry_in_ms=delay_ms)
                await self._clock.sleep(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
        return self._fail(fault)

    async def _take_over(self, standby: Standby | None = None) -> None:
        """Acquire the journal, fold what is there, and append a batch with a new term: no earlier owner can append."""
        await self.journal.acquire()
        recovered = await standby.catch_up() if standby is not None else None
        if recovered is None:
            recovered = await recover(self.journal, self.tables, self._files, self.policy)
        head = recovered.tip
        check_nothing_lost(head, self.durable_head)
        batch_clock = BatchClock(self._clock, head.time_ms)
        now_ms = batch_clock.now_ms()
        event = OwnershipTaken(
            term=Term(head.term + 1),
            owner=self._owner,
            api_address=self._address,
            outage_ms=now_ms - head.time_ms if head.number else 0,
            at_ms=now_ms,
        )
        batch = journal_codec.pack(head, event.term, [event], now_ms)
        await self.journal.append(batch, ())
        state_machine.apply(recovered.state, event)
        self._batch_clock = batch_clock
        self._reset(recovered.state, head_of(batch), event.term, recovered.claim_index, recovered.checkpoint)
        self.projector.offer(recovered.images, head)
        self.projector.offer(take_images(self.undurable_state), self.durable_head)
        self.projector.start()
        self.event_stream.begin(head)
        self.event_stream.add(batch)
        self.status = EngineStatus.RUNNING
        self.changed.notify()

    def _reset(
        self, state: State, durable: JournalHead, term: Term, claim_index: ClaimIndex, checkpoint: JournalHead
    ) -> None:
        self.undurable_state, self.durable_head, self._term, self.claim_index = state, durable, term, claim_index
        self._open_batch = _OpenBatch()
        self._in_flight = None
        rows_max = self.policy.engine.projection_rows_max
        self.projector = Projector(self.tables, self._clock, rows_max, checkpoint, self._on_claims_written, self._fail)

    def _on_claims_written(self, claims: Iterable[tuple[bytes, object]], until: BatchNo) -> None:
        self.claim_index.hand_over(self.undurable_state, (key for key, _ in claims), until)
        self._has_capacity.set()

    def _fail(self, fault: Exception) -> None:
        self.status, self.fault = EngineStatus.FAILED, fault
        self._fail_waiters(self._why_not_running())
        self.event_stream.close()
        self._wake.set()

    def _fail_waiters(self, fault: Unavailable) -> None:
        """Answer every waiter with the fault: none gets a false success, none waits for ever."""
        waiters = [*(self._in_flight or ()), *self._open_batch.waiters]
        self._open_batch, self._in_flight = _OpenBatch(), None
        self._has_capacity.set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(fault)
                waiter.exception()  # marks it as retrieved: a caller that went away leaves no warning

    def _check_running(self) -> None:
        if self.status is not EngineStatus.RUNNING:
            raise self._why_not_running()

    def _why_not_running(self) -> Unavailable:
        if isinstance(self.fault, Fenced):
            return Fenced("ENG-001", self.fault.message, self.fault.hint)
        if self.fault is not None:
            return Unavailable("ENG-002", f"the node failed: {self.fault}", "see its log; nothing confirmed is lost")
        return Unavailable("ENG-002", f"the node is {self.status}", _RETRY_HINT)


_RETRY_HINT: Final = "submit again with the same id: it is done at most once"
