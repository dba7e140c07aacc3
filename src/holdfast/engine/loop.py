"""The owner (ENG-001, ENG-002): decides commands in order, commits those that have accumulated as one batch, answers.

The way of a command: `submit` → `decisions` (inbox, runs) → `_commit_forever` → `_seal` → journal → `_confirm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Corrupt, Fenced, Unavailable
from holdfast.core.base.event import Attachment, Batch, Command, JournalHead, OwnershipTaken, head_of
from holdfast.core.base.values import BatchNo, EventNo, Term
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.batch_clock import BatchClock
from holdfast.engine.change_signal import ChangeSignal
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.commands.decisions import Decisions, OpenBatch
from holdfast.engine.commands.inbox import PendingCommands
from holdfast.engine.event_stream import EventStream
from holdfast.engine.invariants import check_commit
from holdfast.engine.outcome import EngineStatus, Outcome
from holdfast.engine.projection.host import ProjectorHost, ProjectorTask
from holdfast.engine.projection.payload_cache import PayloadCache, keep_payloads
from holdfast.engine.projection.progress import TablesProgress
from holdfast.engine.queries import Query, ReplicationStatus
from holdfast.engine.queries.table import answer
from holdfast.engine.recover import Recovered, Standby, check_nothing_lost, recover
from holdfast.ports import Clock, Files, Journal, Tables, TableWriter

T = TypeVar("T")
YIELD_TURNS: Final = 4
"""Turns of the event loop that a batch waits for callers who are just being answered; no clock is involved."""
RETRY_MS_FIRST, RETRY_MS_MAX = 100, 5_000
WAIT_TABLES_S: Final = 30.0
"""How long a stop waits for the tables."""
CLAIMS_PER_BATCH: Final = 1_024
"""How many stored claims memory drops at each batch, in addition to twice the batch's events."""
_log = structlog.get_logger()


class Engine:
    """One owner of one journal. All methods belong to one event loop."""

    # What belongs to one ownership and is replaced with the next one (`_reset`):
    undurable_state: State
    durable_head: JournalHead
    claim_index: ClaimIndex
    payloads: PayloadCache
    _term: Term
    _batch_clock: BatchClock
    open_batch: OpenBatch
    _in_flight: list[PendingCommands] | None

    def __init__(
        self,
        journal: Journal,
        tables: TableWriter,
        files: Files,
        clock: Clock,
        policy: Policy,
        owner: str = "node",
        address: str = "",
        projector: ProjectorHost | None = None,
    ) -> None:
        self.policy = policy
        self._events_max = policy.engine.batch_events_max
        self._answered_last = 0
        self.journal, self._table_writer = journal, tables
        self.tables: Tables = tables
        self._files, self._clock, self._owner, self._address = files, clock, owner, address
        self.status = EngineStatus.STOPPED
        self.fault: Exception | None = None
        self.event_stream = EventStream(journal)
        self.changed = ChangeSignal()
        """Notified whenever something was decided, before it is durable: what follows from it can share its batch."""
        self._wake = asyncio.Event()
        self._decisions = Decisions(self)
        self._is_stop_requested = False
        self._task: asyncio.Task[None] | None = None
        self.projector = projector or ProjectorTask(journal, tables, files, clock, policy)
        self.tables_progress = TablesProgress(self.projector, policy.engine, self._on_tables_written)
        state = State(policy)
        nothing = Recovered(state, JournalHead(), JournalHead(), ClaimIndex(tables), keep_payloads(state))
        self._reset(nothing, JournalHead(), Term(0))

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
        self._decisions.take_turn()
        if self.status is EngineStatus.RUNNING:
            self.status = EngineStatus.STOPPING
            self._decisions.fail_all(self._why_not_running())
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self.status is EngineStatus.STOPPING:
            with suppress(TimeoutError):  # tables that cannot be written now catch up at the next start
                async with asyncio.timeout(WAIT_TABLES_S):
                    await self.tables_progress.wait_at_end(self.durable_head.last)
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
        (outcome,) = await self._put(PendingCommands((command,)))
        return outcome

    async def submit_many(self, commands: Iterable[Command]) -> list[Outcome]:
        """The same for many commands with one answer; each is refused or accepted on its own."""
        return await self._put(PendingCommands(list(commands)))

    async def submit_atomic(self, commands: Sequence[Command]) -> list[Outcome]:
        """All in one batch, in order; if the first is refused or a repeat, the others are not decided at all."""
        return await self._put(PendingCommands(commands, is_atomic=True))

    def _put(self, pending: PendingCommands) -> asyncio.Future[list[Outcome]]:
        self._check_running()
        if pending.commands:
            self._decisions.put(pending)
        else:
            self.answer_when_durable(pending)
        return pending.answered

    async def query_durable(self, query: Query[T]) -> T:
        """Answer a query from memory, once everything it could have seen is durable."""
        self._check_running()
        result = answer(self.undurable_state, query)
        await self._put(PendingCommands(()))
        return result

    def query_undurable(self, query: Query[T]) -> T:
        """The same without waiting: what the answer rests on is lost if the journal does not confirm it.

        Only for an answer that no client acts on before something durable follows: a metric, a wake-up, a check
        in front of a command, or a read whose result waits for a durable query.
        """
        return answer(self.undurable_state, query)

    async def wait_tables(self, event: EventNo | None = None) -> None:
        """Return when the tables are complete up to this event, or up to all that is durable now."""
        await self.tables_progress.wait(self.durable_head.last if event is None else event)

    def now_ms(self) -> int:
        """The time as the next batch would have it (CAN-004)."""
        return max(self._batch_clock.now_ms(), self.durable_head.time_ms)

    def replication_status(self) -> ReplicationStatus:
        tables_as_of = self.tables_progress.checkpoint.last
        return ReplicationStatus("owner", self.status, self.durable_head, tables_as_of, self.fault)

    # ------------------------------------------------------------------------------------ decisions (see `decisions`)

    @property
    def room(self) -> int:
        if self.status is not EngineStatus.RUNNING:
            return 0
        return max(0, self._events_max - len(self.open_batch.events))

    def must_wait(self, command: Command) -> bool:
        """Whether the tables are so far behind that this command has to wait for them."""
        return self.tables_progress.must_wait(command, self.undurable_state.last_event)

    @property
    def is_idle(self) -> bool:
        return self._in_flight is None and not self.open_batch.events

    def on_decided(self) -> None:
        self._wake.set()
        self.changed.notify()

    def on_not_applied(self, fault: Corrupt) -> Unavailable:
        self._fail(fault)
        return self._why_not_running()

    def answer_when_durable(self, pending: PendingCommands) -> None:
        """Answer when everything now in memory is durable."""
        if self.open_batch.events:
            self.open_batch.waiters.append(pending)
        elif self._in_flight is not None:
            self._in_flight.append(pending)
        else:
            pending.answer()

    # ------------------------------------------------------------------------------------ commit

    async def _commit_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.open_batch.events and self.status in (EngineStatus.RUNNING, EngineStatus.STOPPING):
                await self._yield_to_callers()
                await self._commit()
            if self.status is not EngineStatus.RUNNING:
                return

    async def _yield_to_callers(self) -> None:
        """Let callers who were just answered, and workers that a decision woke, add to the batch.

        Else every second batch would hold only one command, and a match would not share the batch of its enqueue.
        """
        is_everyone_back = len(self.open_batch.waiters) >= self._answered_last and not self._decisions.is_waiting
        if is_everyone_back and not self.changed.is_watched:
            return
        for _ in range(YIELD_TURNS):
            before = self._decisions.arrivals
            await asyncio.sleep(0)
            if self._decisions.arrivals == before and not self._decisions.is_waiting:
                return

    async def _commit(self) -> None:
        """Append one batch. There is never a second append in flight: the next batch fills up meanwhile."""
        try:
            pack, attachments, waiters = self._seal()
            self._in_flight = waiters
            batch = await self.journal.append_packed(pack, attachments)
        except (Fenced, Corrupt) as fault:
            self._fail(fault)
        except Exception as fault:
            await self._recover(fault)
        else:
            self._confirm(batch, waiters)

    def _seal(self) -> tuple[Callable[[], Batch], Sequence[Attachment], list[PendingCommands]]:
        """Close the open batch. The journal packs and hashes it, in its own thread where it has one."""
        sealed, head, term = self.open_batch, self.durable_head, self._term
        check_commit(head, len(sealed.events), term, sealed.time_ms, self.undurable_state)
        self.open_batch = OpenBatch()

        def pack() -> Batch:
            return journal_codec.pack(head, term, sealed.events, sealed.time_ms)

        return pack, sealed.attachments, sealed.waiters

    def _confirm(self, batch: Batch, waiters: list[PendingCommands]) -> None:
        self.durable_head = head_of(batch)
        self._in_flight = None
        self.event_stream.add(batch)
        self._drop_stored_claims(batch.last - batch.first + 1)
        self._answered_last = len(waiters)
        for waiter in waiters:
            waiter.answer()
        self._decisions.schedule()

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
                await self._take_over()
                if self._is_stop_requested:  # meanwhile: there is nothing more to commit
                    self.status = EngineStatus.STOPPING
                return None
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
            recovered = await recover(self.journal, self._table_writer, self._files, self.policy)
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
        self._reset(recovered, head_of(batch), event.term)
        self.projector.start()
        self.event_stream.begin(head)
        self.event_stream.add(batch)
        self.status = EngineStatus.RUNNING
        self.changed.notify()

    def _reset(self, recovered: Recovered, durable: JournalHead, term: Term) -> None:
        self.undurable_state, self.durable_head, self._term = recovered.state, durable, term
        self.claim_index, self.payloads = recovered.claim_index, recovered.payloads
        self.tables_progress.checkpoint = recovered.checkpoint
        recovered.state.claims.may_be_stored = self.claim_index.may_contain
        self.open_batch = OpenBatch()
        self._in_flight = None

    def _on_tables_written(self, checkpoint: JournalHead) -> None:
        """ENG-004: what the tables hold may leave memory; the rest of it leaves by an event (workers.evictor)."""
        self.payloads.drop_until(checkpoint.last)
        self._decisions.release_held()

    def _drop_stored_claims(self, events: int) -> None:
        """ENG-005: a little at each batch. Of what is in memory, nothing is above the batch that is being filled."""
        newest = BatchNo(self.durable_head.number + 1)
        limit = CLAIMS_PER_BATCH + 2 * events
        self.claim_index.drop_stored(self.undurable_state, self.tables_progress.checkpoint, newest, limit)

    def _fail(self, fault: Exception) -> None:
        self.status, self.fault = EngineStatus.FAILED, fault
        self._fail_waiters(self._why_not_running())
        self.event_stream.close()
        self._wake.set()

    def _fail_waiters(self, fault: Unavailable) -> None:
        """Answer every waiter with the fault: none gets a false success, none waits for ever."""
        waiters = [*(self._in_flight or ()), *self.open_batch.waiters]
        self.open_batch, self._in_flight = OpenBatch(), None
        for waiter in waiters:
            waiter.fail(fault)
        self._decisions.fail_all(fault)

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
