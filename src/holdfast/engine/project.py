"""Keeps the tables behind the journal (ENG-004): rows of durable batches, merged in memory, written in lots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.core.claim import Claim
from holdfast.core.event import Tip
from holdfast.core.refusal import Unavailable
from holdfast.core.state import State
from holdfast.ports import Clock, Row, Tables, gone

FLUSH_MS: Final = 200
RETRY_MS: Final = 1_000
CANCEL_AGAIN_S: Final = 0.5
CLAIMS_A_TURN: Final = 512
"""How many claims are let go before others get a turn of the event loop."""

RowKey = tuple[str, object]


class Images(msgspec.Struct, frozen=True, gc=False):
    """Rows and claims as they are at the end of one batch; a row that was deleted says so (`is_gone`)."""

    rows: dict[RowKey, Row]
    claims: list[tuple[bytes, Claim]]


def take_images(state: State) -> Images:
    """What changed since the last call. Taken when a batch is sealed: later commands have not touched it yet."""
    rows: dict[RowKey, Row] = {}
    for table, records in state.touched.items():
        for key, record in records.items():
            rows[table, key] = msgspec.structs.astuple(record) if record is not None else gone(key)
        records.clear()
    return Images(rows, state.claims.take_fresh())


def drop_images(state: State) -> None:
    """What changed is in the tables already."""
    for records in state.touched.values():
        records.clear()
    state.claims.forget()


def by_table(rows: dict[RowKey, Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for (table, _), row in rows.items():
        tables.setdefault(table, []).append(row)
    return tables


class Projector:
    """Bounded write-behind. What it has not written yet it serves itself, so point reads never lag."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        rows_max: int,
        checkpoint: Tip,
        on_written: Callable[[Iterable[tuple[bytes, Claim]]], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._tables, self._clock, self._rows_max = tables, clock, rows_max
        self._on_written, self._on_failed = on_written, on_failed
        self._waiting: dict[RowKey, Row] = {}
        self._writing: dict[RowKey, Row] = {}
        self._claims: list[tuple[bytes, Claim]] = []
        self._upto = checkpoint
        self.checkpoint = checkpoint
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._written = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_full = False
        """True when so much waits that new commands should wait too."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="projector")

    def offer(self, images: Images, tip: Tip) -> None:
        """Take the images of a batch that is durable."""
        self._waiting.update(images.rows)
        self._claims.extend(images.claims)
        self._upto = tip
        self._work.set()
        if len(self._waiting) >= self._rows_max:
            self._hurry.set()
            self.is_full = len(self._waiting) >= 8 * self._rows_max

    def peek(self, key: RowKey) -> Row | None:
        """The newest row that the tables may not have yet; it `is_gone` where they still have one that was deleted."""
        return self._waiting.get(key) or self._writing.get(key)

    async def drain(self) -> None:
        """Wait until the tables hold everything that was offered before this call."""
        goal = self._upto.number
        while self.checkpoint.number < goal and self._task is not None and not self._task.done():
            self._hurry.set()
            self._written.clear()
            await self._written.wait()

    async def stop(self) -> None:
        """End the task at once; what was not written comes from the journal next time."""
        if self._task is not None:
            while not self._task.done():  # a driver may answer the first cancelling with an error of its own
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=CANCEL_AGAIN_S)
            self._task = None

    async def _run(self) -> None:
        try:
            while True:
                await self._work.wait()
                if not self._hurry.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FLUSH_MS / 1000):
                            await self._hurry.wait()
                self._work.clear()
                self._hurry.clear()
                await self._flush()
        except Exception as fault:
            self._on_failed(fault)
        finally:
            self._written.set()

    async def _flush(self) -> None:
        tip, claims, self._claims = self._upto, self._claims, []
        self._writing, self._waiting, self.is_full = self._waiting, {}, False
        tables = by_table(self._writing)
        while True:
            try:
                await self._tables.write(tables, claims, tip)
                break
            except Unavailable:
                await self._clock.sleep(RETRY_MS)
        self._writing = {}
        for at in range(0, max(1, len(claims)), CLAIMS_A_TURN):  # also where there are none: who waits for room is told
            self._on_written(claims[at : at + CLAIMS_A_TURN])
            await asyncio.sleep(0)
        self.checkpoint = tip
        self._written.set()
