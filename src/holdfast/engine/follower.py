"""A follower: folds the journal as it grows, answers reads from its own state, and is ready to become the owner.

ENG-006: whoever follows the journal has the same state. A follower decides nothing and writes nothing. What the
owner has not projected yet it keeps, so that it can take over without loading and without losing a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.core import law
from holdfast.core.claim import Claim
from holdfast.core.event import Tip, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.state import State
from holdfast.core.tally import Tally
from holdfast.core.values import BatchNo
from holdfast.engine.history import History
from holdfast.engine.project import Images, RowKey, take_images
from holdfast.engine.read import Standing
from holdfast.engine.recover import Recovered, start_of
from holdfast.engine.snapshot import is_in
from holdfast.engine.tail import Tail
from holdfast.ports import Clock, Files, Journal, Row, Tables

T = TypeVar("T")
RETRY_MS: Final = 500
MADE_WITHIN_MS: Final = 5_000


class Follower:
    """The journal's state in a second process. `run` until cancelled, then perhaps `catch_up` as the new owner."""

    def __init__(self, journal: Journal, tables: Tables, files: Files, clock: Clock, policy: Policy) -> None:
        self.policy, self.journal, self.tables = policy, journal, tables
        self._files, self._clock = files, clock
        self.state, self.tip, self._checkpoint = State(policy), Tip(), Tip()
        self._relied_on = BatchNo(0)
        """Up to here rows and claims were let go, because the tables had them."""
        self.history = History(tables)
        self.tail = Tail(journal)
        self.fault: Exception | None = None
        self._rows: dict[RowKey, tuple[BatchNo, Row]] = {}
        self._claims: list[tuple[BatchNo, bytes, Claim]] = []
        self._look_at = policy.engine.projection_rows_max
        """When so much is kept, it is asked again what the tables have."""

    async def load_when_made(self) -> None:
        """The same as `load`, beside an owner that was started a moment ago and is just making its stores."""
        end_ms = self._clock.monotonic_ms() + MADE_WITHIN_MS
        while True:
            try:
                return await self.load()
            except Unavailable:
                if self._clock.monotonic_ms() >= end_ms:
                    raise
                await self._clock.sleep(RETRY_MS)

    async def load(self) -> None:
        """Fold what there is; nothing is written, neither to the journal nor to the tables."""
        self._rows, self._claims, self.history = {}, [], History(self.tables)
        self._checkpoint = await self._trusted_checkpoint()
        self._relied_on = self._checkpoint.number
        self.state, self.tip = await start_of(self.journal, self._files, self.policy, self._checkpoint)
        await self.history.load()
        self.tail.begin(self.tip)
        await self._read_on()
        self.state.tally = Tally()

    async def run(self) -> None:
        """Follow for ever; a store that cannot be had is asked again, a damaged one ends it."""
        while True:
            try:
                await self.journal.wait_beyond(self.tip.number)
                await self._read_on()
            except Unavailable:
                await self._clock.sleep(RETRY_MS)
            except Corrupt as fault:
                self.fault = fault
                self.tail.close()
                raise

    async def ask(self, question: Callable[[State], T]) -> T:
        """Everything a follower knows is durable, so it answers at once; it may lag behind the owner."""
        return question(self.state)

    def peek(self, key: RowKey) -> Row | None:
        found = self._rows.get(key)
        return found[1] if found else None

    def standing(self) -> Standing:
        return Standing("follower", "following", self.tip, self._checkpoint.last)

    async def catch_up(self) -> Recovered | None:
        """Called by the new owner once the journal is its own: the few batches that are left, and all we know."""
        await self._read_on()
        checkpoint = await self.tables.open()
        if checkpoint.number < self._relied_on:
            return None  # they have lost rows that we let go: a server that crashed, a rebuild that was cut
        if checkpoint.number > self.tip.number or not (checkpoint.number == 0 or await is_in(self.journal, checkpoint)):
            return None  # the tables must be rebuilt, and that is a matter of loading
        self._forget_until(checkpoint)
        rows = {key: row for key, (_, row) in self._rows.items()}
        return Recovered(
            self.state,
            self.tip,
            checkpoint,
            Images(rows, [(key, claim) for _, key, claim in self._claims]),
            self.history,
        )

    async def _read_on(self) -> None:
        async for batch in self.journal.read(self.tip.number):
            self.tip = law.fold(self.state, self.tip, (batch,))
            images = take_images(self.state)
            if batch.number > self._checkpoint.number:
                self._rows |= {key: (batch.number, row) for key, row in images.rows.items()}
                self._claims += [(batch.number, key, claim) for key, claim in images.claims]
            else:
                self.history.hand_over(self.state, (key for key, _ in images.claims))
            self.tail.add(batch)
            assert self.tip == tip_of(batch)
            if len(self._rows) + len(self._claims) > self._look_at:
                self._forget_until(await self._trusted_checkpoint())
            await asyncio.sleep(0)  # a long stretch must not keep readers waiting

    def _forget_until(self, checkpoint: Tip) -> None:
        """What the tables hold by now need not be kept here."""
        self._checkpoint = checkpoint
        self._relied_on = max(self._relied_on, checkpoint.number)
        self._rows = {key: found for key, found in self._rows.items() if found[0] > checkpoint.number}
        self.history.hand_over(self.state, (key for batch, key, _ in self._claims if batch <= checkpoint.number))
        self._claims = [found for found in self._claims if found[0] > checkpoint.number]
        left = len(self._rows) + len(self._claims)  # beside tables that lag, each batch would walk over all of it else
        self._look_at = max(self.policy.engine.projection_rows_max, 2 * left)

    async def _trusted_checkpoint(self) -> Tip:
        """Where the tables stand, or the beginning where they cannot be read or belong to another journal."""
        try:
            checkpoint = await self.tables.checkpoint()
        except Unavailable:
            return Tip()
        return checkpoint if checkpoint.number and await is_in(self.journal, checkpoint) else Tip()
