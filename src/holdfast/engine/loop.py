"""The owner (ENG-001, ENG-002): decides commands in order, commits those that have accumulated as one batch, answers.

The way of a command: `submit` → `decisions` (inbox, runs) → `_commit_forever` → `_seal` → journal → `_confirm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import structlog

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.errors import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.base.event import Attachment, Batch, Command, JournalHead, head_of
from holdfast.core.base.values import EventNo, Term
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.batch_clock import BatchClock
from holdfast.engine.change_signal import ChangeSignal
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.commands.decisions import Decisions, OpenBatch
from holdfast.engine.commands.inbox import PendingCommands
from holdfast.engine.event_stream import EventStream
from holdfast.engine.invariants import check_commit
from holdfast.engine.outcome import RETRY_HINT, EngineStatus, Outcome, why_not_running
from holdfast.engine.ownership.clock_check import check_admission, start_clock
from holdfast.engine.ownership.heartbeat import OwnerHeartbeat
from holdfast.engine.ownership.settings import OwnerSettings
from holdfast.engine.ownership.term import first_batch, is_replaced
from holdfast.engine.projection.host import ProjectorHost, ProjectorTask
from holdfast.engine.projection.payload_cache import PayloadCache, keep_payloads
from holdfast.engine.projection.progress import TablesProgress
from holdfast.engine.queries import Query, ReplicationStatus
from holdfast.engine.queries.table import answer
from holdfast.engine.recover import Recovered, Standby, check_nothing_lost, recover
from holdfast.ports import Files, Journal, OwnerClock, Tables, TableWriter

T = TypeVar("T")
YIELD_TURNS: Final = 4
"""Turns of the event loop that a batch waits for callers who are just being answered; no clock is involved."""
RETRY_MS_FIRST, RETRY_MS_MAX = 100, 5_000
WAIT_TABLES_S: Final = 30.0  # at a stop
_log = structlog.get_logger()


class Engine:
    """One owner of one journal. All methods belong to one event loop."""

    status: EngineStatus
    fault: Exception | None
    # What belongs to one ownership and is replaced with the next one (`_reset`):
    undurable_state: State
    durable_head: JournalHead
    claim_index: ClaimIndex
    payloads: PayloadCache
    _term: Term
    _first_batch: Batch
    _batch_clock: BatchClock
    open_batch: OpenBatch
    _in_flight: list[PendingCommands] | None

    def __init__(
        self,
        journal: Journal,
        tables: TableWriter,
        files: Files,
        clock: OwnerClock,
        policy: Policy,
        owner: str = "node",
        address: str = "",
        projector: ProjectorHost | None = None,
        settings: OwnerSettings | None = None,
        accept_clock: bool = False,
    ) -> None:
        self._first_policy = policy
        """What counts while the journal has adopted none."""
        self.journal, self._table_writer = journal, tables
        self.tables: Tables = tables
        self._files, self._clock, self._owner, self._address = files, clock, owner, address
        self.status, self.fault = EngineStatus.STOPPED, None
        self.event_stream = EventStream(journal)
        self.changed = ChangeSignal()
        """Notified whenever something was decided, before it is durable: what follows from it can share its batch."""
        self._wake = asyncio.Event()
        self._decisions = Decisions(self)
        self._is_stop_requested, self._accept_clock, self._answered_last = False, accept_clock, 0
        self.clock_fault: Refused | None = None
        """Why the machine's clock is not believed: until the operator accepts it, nothing is admitted or expires."""
        self._heartbeat = OwnerHeartbeat(journal, clock, settings, self._interrupt)
        self._interruption: Unavailable | None = None
        """Why ownership has to be acquired again before anything else is decided or answered."""
        self._task: asyncio.Task[None] | None = None
        self.projector = projector or ProjectorTask(journal, tables, files, clock, policy)
        self.tables_progress = TablesProgress(self.projector, self._on_tables_written)
        state = State(policy)
        nothing = Recovered(state, JournalHead(), JournalHead(), ClaimIndex(tables), keep_payloads(state))
        self._reset(nothing, JournalHead(), Term(0))

    @property
    def policy(self) -> Policy:
        """The policy that counts now: the one that the journal adopted last (PRI-003)."""
        return self.undurable_state.policy

    # ------------------------------------------------------------------------------------ life

    async def start(self, standby: Standby | None = None) -> None:
        """Take ownership, recover (or take what a standby has folded), record the new term; raises what prevents it."""
        self.status, self.fault = EngineStatus.RECOVERING, None
        self._heartbeat.start()
        try:
            await self._take_over(standby)
        except Exception as fault:
            await self._heartbeat.stop()
            self.fail(fault)
            raise
        self._task = asyncio.create_task(self._commit_forever(), name="engine")

    async def stop(self) -> None:
        """Commit and project what was accepted, refuse the rest."""
        self._is_stop_requested = True
        self._decisions.take_turn()
        if self.status is EngineStatus.RUNNING:
            self.status = EngineStatus.STOPPING
            self._decisions.fail_all(why_not_running(self.status, self.fault))
        self._wake.set()
        if self._task is not None:
            await self._task
            self._task = None
        if self.status is EngineStatus.STOPPING:
            with suppress(TimeoutError):  # tables that cannot be written now catch up at the next start
                async with asyncio.timeout(WAIT_TABLES_S):
                    await self.tables_progress.wait_at_end(self.durable_head.last)
            self.status = EngineStatus.STOPPED
        await self.end_ownership()
        self.event_stream.close()

    async def end_ownership(self) -> None:
        """End what belongs to an owner; it may start again."""
        await self.projector.stop()
        await self._heartbeat.stop()

    async def wait_ended(self) -> None:
        """Return when the owner stopped; raise what made it fail."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self.fault is not None:
            raise self.fault

    # ------------------------------------------------------------------------------------ commands

    async def submit(self, command: Command) -> Outcome:
        """Decide, make durable, answer. Unavailable means that the outcome is not known: submit the same id again."""
        return (await self._put(PendingCommands((command,))))[0]

    async def submit_many(self, commands: Iterable[Command]) -> list[Outcome]:
        """The same for many commands with one answer; each is refused or accepted on its own."""
        return await self._put(PendingCommands(list(commands)))

    async def submit_atomic(self, commands: Sequence[Command]) -> list[Outcome]:
        """All in one batch, in order; if the first is refused or a repeat, the others are not decided at all."""
        return await self._put(PendingCommands(commands, is_atomic=True))

    def _put(self, pending: PendingCommands) -> asyncio.Future[list[Outcome]]:
        self._check_running()
        check_admission(self.clock_fault, pending.commands)
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
        checkpoint = self.tables_progress.checkpoint
        return ReplicationStatus("owner", self.status, self.durable_head, checkpoint.last, self.fault)

    # ------------------------------------------------------------------------------------ decisions (see `decisions`)

    @property
    def room(self) -> int:
        free = self.policy.engine.batch_events_max - len(self.open_batch.events)
        return 0 if self.open_batch.is_full or self._is_interrupted() else max(0, free)

    def must_wait(self, command: Command) -> bool:
        """Whether the tables are so far behind that this command has to wait for them."""
        return self.tables_progress.must_wait(command, self.undurable_state)

    @property
    def is_idle(self) -> bool:
        return self._in_flight is None and not self.open_batch.events

    def on_decided(self) -> None:
        self._wake.set()
        self.changed.notify()

    def on_not_applied(self, fault: Corrupt) -> Unavailable:
        self.fail(fault)
        return why_not_running(self.status, self.fault)

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
            while self._may_commit():
                await self._yield_to_callers()
                if self._may_commit():
                    await self._commit()
            if self._interruption is not None:
                await self._take_over_again(self._interruption)
            if self.status is not EngineStatus.RUNNING:
                return

    def _may_commit(self) -> bool:
        return (self.status is EngineStatus.STOPPING or not self._is_interrupted()) and bool(self.open_batch.events)

    async def _yield_to_callers(self) -> None:
        """Let callers who were just answered, and workers that a decision woke, add to the batch: else every second
        batch would hold only one command, and a match would not share the batch of its enqueue."""
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
            with self._heartbeat.appending():
                batch = await self.journal.append_packed(pack, attachments)
        except (Fenced, Corrupt) as fault:
            self.fail(fault)
        except Exception as fault:
            await self._recover(fault)
        else:
            self._confirm(batch, waiters)

    def _seal(self) -> tuple[Callable[[], Batch], Sequence[Attachment], list[PendingCommands]]:
        """Close the open batch. The journal packs and hashes it, in its own thread where it has one."""
        sealed, head, term = self.open_batch, self.durable_head, self._term
        check_commit(head, len(sealed.events), term, sealed.time_ms, self.undurable_state)
        self.open_batch = OpenBatch()
        pack = partial(journal_codec.pack, head, term, sealed.events, sealed.time_ms)
        return pack, sealed.attachments, sealed.waiters

    def _confirm(self, batch: Batch, waiters: list[PendingCommands]) -> None:
        self.durable_head, self._in_flight = head_of(batch), None
        self.event_stream.add(batch)
        self.claim_index.drop_some(self.undurable_state, self.tables_progress.checkpoint, batch)
        self._answered_last = len(waiters)
        for waiter in waiters:
            waiter.answer()
        self._decisions.schedule()

    # ------------------------------------------------------------------------------------ ownership, failure

    async def _recover(self, fault: Exception) -> None:
        """ENG-002: discard memory and what was decided after the failed append; acquire the journal and load again."""
        _log.warning("ownership_interrupted", reason=str(fault), term=self._term, hint="recovering from the journal")
        self.status, self._interruption = EngineStatus.RECOVERING, None
        self._fail_waiters(Unavailable("ENG-002", f"the journal did not confirm: {fault}", RETRY_HINT))
        await self.projector.stop()
        delay_ms = RETRY_MS_FIRST
        while not self._is_stop_requested:
            try:
                return await self._take_over()
            except (Fenced, Corrupt) as final:
                return self.fail(final)
            except Exception as again:
                if await is_replaced(self.journal, self._first_batch, self._term):
                    return self.fail(Fenced("ENG-008", "another node owns the journal now", "this one ended as owner"))
                _log.info("recovery_failed", reason=str(again), retry_in_ms=delay_ms)
                await self._clock.sleep(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
        return self.fail(fault)

    async def _take_over(self, standby: Standby | None = None) -> None:
        """Acquire the journal, fold what is there, and append a batch with a new term: no earlier owner can append."""
        await self.journal.acquire()
        recovered = await standby.catch_up() if standby is not None else None
        if recovered is None:
            recovered = await recover(self.journal, self._table_writer, self._files, self._first_policy)
        check_nothing_lost(recovered.tip, self.durable_head)
        await self._begin_term(recovered)

    async def _begin_term(self, recovered: Recovered) -> None:
        head = recovered.tip
        batch_clock, fault = await start_clock(self._clock, self.journal, head, is_accepted=self._accept_clock)
        event, batch = first_batch(head, self._owner, self._address, batch_clock.now_ms())
        self._first_batch = batch
        with self._heartbeat.appending():
            await self.journal.append(batch, ())
        state_machine.apply(recovered.state, event)
        self._batch_clock, self.clock_fault = batch_clock, fault
        self._reset(recovered, head_of(batch), event.term)
        self.projector.start()
        self.event_stream.begin(head)
        self.event_stream.add(batch)
        self._heartbeat.reset()  # loading may have taken long
        self.status = EngineStatus.STOPPING if self._is_stop_requested else EngineStatus.RUNNING
        self.changed.notify()

    def _interrupt(self, fault: Unavailable) -> None:
        """Nothing more is decided or answered until ownership is acquired again, after the append under way."""
        if self.status is EngineStatus.RUNNING:
            self.status, self._interruption = EngineStatus.RECOVERING, fault
            self._wake.set()

    def _is_interrupted(self) -> bool:
        """Whether this owner may not go on now; asked before each decision and answer (LEA-008)."""
        if self.status is EngineStatus.RUNNING and (pause := self._heartbeat.find_pause()) is not None:
            self._interrupt(pause)
        return self.status is not EngineStatus.RUNNING

    async def _take_over_again(self, fault: Unavailable) -> None:
        """With what is in memory, where all of it is durable and no one wrote meanwhile; else from the journal."""
        self._interruption = None
        try:
            if not self.open_batch.events and await self.journal.acquire() == self.durable_head:
                _log.warning("ownership_interrupted", reason=str(fault), term=self._term)
                state, checkpoint = self.undurable_state, self.tables_progress.checkpoint
                await self._begin_term(Recovered(state, self.durable_head, checkpoint, self.claim_index, self.payloads))
                return self._decisions.schedule()
        except (Fenced, Corrupt) as final:
            return self.fail(final)
        except Exception as again:
            _log.info("recovery_failed", reason=str(again))
        return await self._recover(fault)

    def _reset(self, recovered: Recovered, durable: JournalHead, term: Term) -> None:
        self.undurable_state, self.durable_head, self._term = recovered.state, durable, term
        self.claim_index, self.payloads = recovered.claim_index, recovered.payloads
        self.tables_progress.checkpoint = recovered.checkpoint
        recovered.state.claims.may_be_stored = self.claim_index.may_contain
        self.open_batch, self._in_flight = OpenBatch(), None

    def _on_tables_written(self, checkpoint: JournalHead) -> None:
        """ENG-004: what the tables hold may leave memory; the rest of it leaves by an event (workers.evictor)."""
        self.payloads.drop_until(checkpoint.last)
        self._decisions.release_held()

    def fail(self, fault: Exception) -> None:
        """Decide and answer nothing more; `wait_ended` raises the fault."""
        self.status, self.fault = EngineStatus.FAILED, fault
        self._fail_waiters(why_not_running(self.status, self.fault))
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
        if self._is_interrupted():
            raise why_not_running(self.status, self.fault)
