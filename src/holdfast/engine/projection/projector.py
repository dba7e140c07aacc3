"""The tables behind the journal (ENG-004): folded from it and nothing else, written in large transactions.

The projector folds with the same apply as everybody else. In its state alone changed records are marked, and
so a record that changed ten times meanwhile is one row. It also writes the snapshots, at its checkpoint (ENG-003).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Batch, Event, JournalHead, check_follows, head_of
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.chain.messages import FinalTxsEvicted
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.tables import TABLES
from holdfast.engine.projection.changed_rows import count_changed, take_rows
from holdfast.engine.projection.unindexed import drop_indexes, with_order
from holdfast.engine.snapshots import snapshot_files
from holdfast.ports import Clock, Files, Journal, TableWriter

FLUSH_MS: Final = 200
FOLD_MS: Final = 50
"""How often new batches are folded while they gather."""
RETRY_MS: Final = 1_000
_log = structlog.get_logger()


class TablesMoved(Unavailable):
    """The tables are not where this projector left them: it must begin at their checkpoint again."""


class Projector:
    """One writer of one set of tables. `run` until cancelled; every start goes on from the stored checkpoint."""

    def __init__(
        self,
        journal: Journal,
        tables: TableWriter,
        files: Files,
        policy: Policy,
        clock: Clock | None = None,
        on_written: Callable[[JournalHead], None] = lambda _: None,
    ) -> None:
        self._journal, self._tables, self._files, self._policy, self._clock = journal, tables, files, policy, clock
        self._on_written = on_written
        self._flush_now = asyncio.Event()
        self._state, self._tip = State(policy), JournalHead()
        self._snapshot, self._snapshot_due = JournalHead(), EventNo(0)
        """The last good snapshot, and the event from which on the next one is due."""
        self._gathering_since = 0.0
        """When the last transaction ended: a full one is not followed by a small one."""
        self.checkpoint = JournalHead()

    async def run(self) -> None:
        """Load, then follow the journal for ever. An unavailable store is tried again, a damaged one ends it."""
        while True:
            try:
                await self.load()
                while True:
                    await self._journal.wait_after(self._tip.number)
                    await self._gather()
                    await self.catch_up()
                    await self._write_snapshot_if_due()
            except Unavailable as fault:
                await self._pause(fault)

    def request_flush(self) -> None:
        """Somebody waits for the tables: do not gather batches any longer."""
        self._flush_now.set()

    async def load(self) -> None:
        """Take the tables' lock and fold up to their checkpoint, so that the next batch gives the next rows."""
        self.checkpoint = await self._tables.open()
        if self.checkpoint.number and not await snapshot_files.is_in_journal(self._journal, self.checkpoint):
            raise Unavailable("ENG-004", "the tables belong to another journal", "the next owner rebuilds them")
        state, tip = await snapshot_files.load_fold_start(self._journal, self._files, self._policy, self.checkpoint)
        self._snapshot, self._snapshot_due = tip, EventNo(tip.last + state.policy.engine.snapshot_every_events)
        state.record_nothing()
        drop_indexes(state)
        async for batch in self._journal.read(tip.number, self.checkpoint.number):
            tip = journal_codec.fold(state, tip, (batch,))
        state.touched, state.claims.is_recording = {table: {} for table in TABLES}, True
        self._state, self._tip = state, tip
        self._on_written(self.checkpoint)

    async def catch_up(
        self, until: BatchNo | None = None, progress: Callable[[JournalHead], None] | None = None
    ) -> None:
        """Fold and write everything that is durable now, in transactions of a bounded size."""
        await self._fold_durable(until, progress)
        if self._tip != self.checkpoint:
            await self._write()

    async def _fold_durable(
        self, until: BatchNo | None = None, progress: Callable[[JournalHead], None] | None = None
    ) -> None:
        """Fold everything that is durable now; what is too much for one transaction is written."""
        rows_max = self._state.policy.engine.projection_rows_max
        async for batch in self._journal.read(self._tip.number, until):
            await self._fold(batch)
            if count_changed(self._state) >= rows_max:
                await self._write()
            if progress is not None:
                progress(self._tip)
            await asyncio.sleep(0)

    async def _fold(self, batch: Batch) -> None:
        """Fold a batch; what it evicts is written before. Only a rebuild is behind what an owner evicted."""
        check_follows(self._tip, batch)
        events = journal_codec.unpack(batch)
        if self._tip != self.checkpoint and _evicts_after(self.checkpoint.last, events):
            await self._write()
        journal_codec.apply_stored(self._state, *events)
        self._tip = head_of(batch)

    async def _gather(self) -> None:
        """Let more batches come: fewer and larger transactions, and many a row is written once instead of twice.

        They are folded meanwhile: who asks for the tables then waits for the writing alone.
        """
        now = asyncio.get_running_loop().time
        self._gathering_since = now()
        while now() < self._gathering_since + FLUSH_MS / 1000 and self.checkpoint.last < self._snapshot_due:
            await self._fold_durable()
            if self._flush_now.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLD_MS / 1000):
                    await self._flush_now.wait()
        self._flush_now.clear()

    async def _write(self) -> None:
        rows, claims = take_rows(self._state)
        while True:
            try:
                await self._tables.write(rows, claims, self._tip, after=self.checkpoint)
                break
            except Unavailable as fault:
                await self._pause(fault)
                if await self._is_written():
                    break
        self.checkpoint, self._gathering_since = self._tip, asyncio.get_running_loop().time()
        self._on_written(self.checkpoint)

    async def _pause(self, fault: Unavailable) -> None:
        """Before the next attempt; without a clock there is none."""
        if self._clock is None:
            raise fault
        _log.warning("projection_interrupted", reason=str(fault), retry_ms=RETRY_MS)
        await self._clock.sleep(RETRY_MS)

    async def _is_written(self) -> bool:
        """Whether an attempt with an unknown outcome was the last one; a writer in between is noticed."""
        try:
            stored = await self._tables.open()
        except Unavailable:
            return False
        if stored not in (self.checkpoint, self._tip):
            raise TablesMoved("ENG-004", f"the tables are at batch {stored.number}, not {self.checkpoint.number}")
        return stored == self._tip

    async def _write_snapshot_if_due(self) -> None:
        """ENG-003: folded here, not in the owner's loop. One that fails is tried again after as many events."""
        if self.checkpoint.last < self._snapshot_due:
            return
        self._snapshot_due = EventNo(self.checkpoint.last + self._state.policy.engine.snapshot_every_events)
        try:
            with with_order(self._state):
                await snapshot_files.store(self._files, self._state, self.checkpoint, self._snapshot)
        except (Unavailable, Corrupt) as fault:
            _log.warning("snapshot_failed", reason=str(fault))
        else:
            self._snapshot = self.checkpoint
            _log.info("snapshot_made", batch=self.checkpoint.number, last_event=self.checkpoint.last)


def _evicts_after(checkpoint: EventNo, events: Sequence[Event]) -> bool:
    if FinalTxsEvicted not in set(map(type, events)):  # nearly always: asking each event takes ten times as long
        return False
    return any(isinstance(event, FinalTxsEvicted) and event.as_of > checkpoint for event in events)
