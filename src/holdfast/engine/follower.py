"""A follower: folds the journal as it grows, answers reads from its own state, and is ready to become the owner.

ENG-006: whoever follows the journal has the same state. A follower decides nothing, writes nothing and keeps no rows:
what left its memory is in the tables, which the owner's projector writes.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import JournalHead, head_of
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.event_stream import EventStream
from holdfast.engine.metrics.event_metrics import EventMetrics
from holdfast.engine.projection.payload_cache import keep_payloads
from holdfast.engine.queries import Query, ReplicationStatus
from holdfast.engine.queries.table import answer
from holdfast.engine.recover import Recovered, read_checkpoint
from holdfast.engine.snapshots.snapshot_files import is_in_journal, load_fold_start
from holdfast.ports import Clock, Files, Journal, Tables

T = TypeVar("T")
RETRY_MS: Final = 500
CREATED_WITHIN_MS: Final = 5_000
POLL_MS: Final = 20


class Follower:
    """The journal's state in a second process. `run` until cancelled, then perhaps `catch_up` as the new owner."""

    def __init__(self, journal: Journal, tables: Tables, files: Files, clock: Clock, policy: Policy) -> None:
        self._first_policy, self.journal, self.tables = policy, journal, tables
        self._files, self._clock = files, clock
        self.state, self.tip, self._checkpoint = State(policy), JournalHead(), JournalHead()
        self._recorded_after = BatchNo(0)
        """Claims of later batches are kept in memory; earlier ones were in the tables when this node was loaded."""
        self._dropped_until = BatchNo(0)
        """Claims up to this batch may have been dropped here, because the tables had them."""
        self.claim_index, self.payloads = ClaimIndex(tables), keep_payloads(self.state)
        self.event_stream = EventStream(journal)
        self.fault: Exception | None = None
        self._recheck_at = policy.engine.projection_rows_max
        """With this many claims and payloads in memory, the checkpoint of the tables is read again."""

    @property
    def policy(self) -> Policy:
        """The policy that counts now: the one that the journal adopted last (PRI-003)."""
        return self.state.policy

    async def load_when_created(self) -> None:
        """The same as `load`, beside an owner that was started a moment ago and is creating its stores."""
        end_ms = self._clock.monotonic_ms() + CREATED_WITHIN_MS
        while True:
            try:
                return await self.load()
            except Unavailable:
                if self._clock.monotonic_ms() >= end_ms:
                    raise
                await self._clock.sleep(RETRY_MS)

    async def load(self) -> None:
        """Fold the journal; nothing is written, neither to the journal nor to the tables."""
        self.claim_index = ClaimIndex(self.tables)
        self._checkpoint = await self._trusted_checkpoint()
        self._recorded_after = self._dropped_until = self._checkpoint.number
        self.state, self.tip = await load_fold_start(self.journal, self._files, self._first_policy, self._checkpoint)
        self.payloads = keep_payloads(self.state)
        if self._checkpoint.number:
            await self.claim_index.load_filter()
        self.event_stream.begin(self.tip)
        await self._fold_new_batches()
        self.state.observer = EventMetrics()

    async def run(self) -> None:
        """Follow for ever; an unavailable store is tried again, a damaged one ends it."""
        while True:
            try:
                await self.journal.wait_after(self.tip.number)
                await self._fold_new_batches()
            except Unavailable:
                await self._clock.sleep(RETRY_MS)
            except Corrupt as fault:
                self.fault = fault
                self.event_stream.close()
                raise

    async def query_durable(self, query: Query[T]) -> T:
        """Everything a follower knows is durable, so it answers at once; it may lag behind the owner."""
        return answer(self.state, query)

    def query_undurable(self, query: Query[T]) -> T:
        """The same: a follower holds nothing that is not durable."""
        return answer(self.state, query)

    def now_ms(self) -> int:
        """A follower has no clock of the journal: the time of the last batch that it has folded."""
        return self.tip.time_ms

    async def wait_tables(self, event: EventNo) -> None:
        """Return when the tables are complete up to this event."""
        while (await self.tables.checkpoint()).last < event:
            await self._clock.sleep(POLL_MS)

    def replication_status(self) -> ReplicationStatus:
        return ReplicationStatus("follower", "following", self.tip, self._checkpoint.last, self.fault)

    async def catch_up(self) -> Recovered | None:
        """Called by the new owner once it has acquired the journal: fold the last batches and give everything."""
        await self._fold_new_batches()
        checkpoint = await read_checkpoint(self.tables)
        if checkpoint.number < self._dropped_until:
            return None  # the tables lost claims that were dropped here: a server crash, an interrupted rebuild
        if checkpoint.number > self.tip.number or not (
            checkpoint.number == 0 or await is_in_journal(self.journal, checkpoint)
        ):
            return None  # the tables must be rebuilt: only loading does that
        self._drop_projected(checkpoint)
        self.state.claims.is_recording = True
        return Recovered(self.state, self.tip, checkpoint, self.claim_index, self.payloads)

    async def _fold_new_batches(self) -> None:
        async for batch in self.journal.read(self.tip.number):
            self.state.claims.is_recording = batch.number > self._recorded_after
            self.tip = journal_codec.fold(self.state, self.tip, (batch,))
            self.event_stream.add(batch)
            assert self.tip == head_of(batch)
            if self._count_kept() > self._recheck_at:
                self._drop_projected(await self._trusted_checkpoint())
            await asyncio.sleep(0)  # readers get a turn after every batch

    def _count_kept(self) -> int:
        return len(self.state.claims.recent) + len(self.state.claims.older) + len(self.payloads)

    def _drop_projected(self, checkpoint: JournalHead) -> None:
        """Drop what the tables hold by now."""
        self._checkpoint = checkpoint
        self._dropped_until = max(self._dropped_until, checkpoint.number)
        self.payloads.drop_until(checkpoint.last)
        self.claim_index.drop_stored(self.state, checkpoint, self.tip.number, self._count_kept())
        # If the tables lag, do not read their checkpoint at every batch.
        self._recheck_at = max(self.policy.engine.projection_rows_max, 2 * self._count_kept())

    async def _trusted_checkpoint(self) -> JournalHead:
        """The checkpoint of the tables, or an empty one where they cannot be read or belong to another journal."""
        checkpoint = await read_checkpoint(self.tables)
        return checkpoint if checkpoint.number and await is_in_journal(self.journal, checkpoint) else JournalHead()
