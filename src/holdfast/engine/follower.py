"""A follower: folds the journal as it grows, answers reads from its own state, and is ready to become the owner.

ENG-006: whoever follows the journal has the same state. A follower decides nothing and writes nothing. It keeps the
rows that the owner has not projected yet, so that it can take over without loading and without losing a row.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import JournalHead, head_of
from holdfast.core.base.values import BatchNo
from holdfast.core.index.metrics import QueueMetrics
from holdfast.core.index.unique_ids import Claim
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.claim_index import ClaimIndex
from holdfast.engine.event_stream import EventStream
from holdfast.engine.projector import Images, RowKey, take_images
from holdfast.engine.queries import Query, ReplicationStatus
from holdfast.engine.queries.table import answer
from holdfast.engine.recover import Recovered, load_fold_start
from holdfast.engine.snapshot import is_in_journal
from holdfast.ports import Clock, Files, Journal, Row, Tables

T = TypeVar("T")
RETRY_MS: Final = 500
CREATED_WITHIN_MS: Final = 5_000


class Follower:
    """The journal's state in a second process. `run` until cancelled, then perhaps `catch_up` as the new owner."""

    def __init__(self, journal: Journal, tables: Tables, files: Files, clock: Clock, policy: Policy) -> None:
        self.policy, self.journal, self.tables = policy, journal, tables
        self._files, self._clock = files, clock
        self.state, self.tip, self._checkpoint = State(policy), JournalHead(), JournalHead()
        self._dropped_until = BatchNo(0)
        """Rows and claims up to this batch were dropped here, because the tables had them."""
        self.claim_index = ClaimIndex(tables)
        self.event_stream = EventStream(journal)
        self.fault: Exception | None = None
        self._rows: dict[RowKey, tuple[BatchNo, Row]] = {}
        self._claims: list[tuple[BatchNo, bytes, Claim]] = []
        self._recheck_at = policy.engine.projection_rows_max
        """With this many rows and claims kept, the checkpoint of the tables is read again."""

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
        self._rows, self._claims, self.claim_index = {}, [], ClaimIndex(self.tables)
        self._checkpoint = await self._trusted_checkpoint()
        self._dropped_until = self._checkpoint.number
        self.state, self.tip = await load_fold_start(self.journal, self._files, self.policy, self._checkpoint)
        await self.claim_index.load_filter()
        self.event_stream.begin(self.tip)
        await self._fold_new_batches()
        self.state.metrics = QueueMetrics()

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

    def peek(self, key: RowKey) -> Row | None:
        kept = self._rows.get(key)
        return kept[1] if kept else None

    def replication_status(self) -> ReplicationStatus:
        return ReplicationStatus("follower", "following", self.tip, self._checkpoint.last, self.fault)

    async def catch_up(self) -> Recovered | None:
        """Called by the new owner once it has acquired the journal: fold the last batches and give everything."""
        await self._fold_new_batches()
        checkpoint = await self.tables.open()
        if checkpoint.number < self._dropped_until:
            return None  # the tables lost rows that were dropped here: a server crash, an interrupted rebuild
        if checkpoint.number > self.tip.number or not (
            checkpoint.number == 0 or await is_in_journal(self.journal, checkpoint)
        ):
            return None  # the tables must be rebuilt: only loading does that
        self._drop_projected(checkpoint)
        rows = {key: row for key, (_, row) in self._rows.items()}
        return Recovered(
            self.state,
            self.tip,
            checkpoint,
            Images(rows, [(key, claim) for _, key, claim in self._claims]),
            self.claim_index,
        )

    async def _fold_new_batches(self) -> None:
        async for batch in self.journal.read(self.tip.number):
            self.tip = journal_codec.fold(self.state, self.tip, (batch,))
            images = take_images(self.state)
            if batch.number > self._checkpoint.number:
                self._rows |= {key: (batch.number, row) for key, row in images.rows.items()}
                self._claims += [(batch.number, key, claim) for key, claim in images.claims]
            else:
                self.claim_index.hand_over(self.state, (key for key, _ in images.claims), batch.number)
            self.event_stream.add(batch)
            assert self.tip == head_of(batch)
            if len(self._rows) + len(self._claims) > self._recheck_at:
                self._drop_projected(await self._trusted_checkpoint())
            await asyncio.sleep(0)  # readers get a turn after every batch

    def _drop_projected(self, checkpoint: JournalHead) -> None:
        """Drop what the tables hold by now."""
        self._checkpoint = checkpoint
        self._dropped_until = max(self._dropped_until, checkpoint.number)
        self._rows = {key: kept for key, kept in self._rows.items() if kept[0] > checkpoint.number}
        self.claim_index.hand_over(
            self.state,
            (key for batch, key, _ in self._claims if batch <= checkpoint.number),
            checkpoint.number,
        )
        self._claims = [kept for kept in self._claims if kept[0] > checkpoint.number]
        left = len(self._rows) + len(self._claims)  # if the tables lag, do not walk over all of it at every batch
        self._recheck_at = max(self.policy.engine.projection_rows_max, 2 * left)

    async def _trusted_checkpoint(self) -> JournalHead:
        """The checkpoint of the tables, or an empty one where they cannot be read or belong to another journal."""
        try:
            checkpoint = await self.tables.checkpoint()
        except Unavailable:
            return JournalHead()
        return checkpoint if checkpoint.number and await is_in_journal(self.journal, checkpoint) else JournalHead()
