"""Keeps the tables up with the journal (ENG-004): rows of durable batches, merged in memory, written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.core.index.unique_ids import Claim
from holdfast.core.state import State
from holdfast.ports import Clock, Row, Tables, row_deleted

FLUSH_MS: Final = 200
RETRY_MS: Final = 1_000
CANCEL_AGAIN_S: Final = 0.5
CLAIMS_PER_TURN: Final = 512
"""How many claims memory drops before others get a turn of the event loop."""

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
            rows[table, key] = msgspec.structs.astuple(record) if record is not None else row_deleted(key)
        records.clear()
    return Images(rows, state.claims.drain_new())


def drop_images(state: State) -> None:
    """What changed is in the tables already."""
    for records in state.touched.values():
        records.clear()
    state.claims.clear_recent()


def by_table(rows: dict[RowKey, Row]) -> dict[str, list[Row]]:
    tables: dict[str, list[Row]] = {}
    for (table, _), row in rows.items():
        tables.setdefault(table, []).append(row)
    return tables


class Projector:
    """Bounded write-behind. It serves the rows that it has not written yet, so point reads never lag."""

    def __init__(
        self,
        tables: Tables,
        clock: Clock,
        rows_max: int,
        checkpoint: JournalHead,
        on_written: Callable[[Iterable[tuple[bytes, Claim]], BatchNo], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._tables, self._clock, self._rows_max = tables, clock, rows_max
        self._on_written, self._on_failed = on_written, on_failed
        self._waiting: dict[RowKey, Row] = {}
        self._writing: dict[RowKey, Row] = {}
        self._claims: list[tuple[bytes, Claim]] = []
        self._offered_head = checkpoint
        self.checkpoint = checkpoint
        self._has_work = asyncio.Event()
        self._flush_now = asyncio.Event()
        self._written = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_full = False
        """True when the backlog of rows is so large that new commands should wait, too."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="projector")

    def offer(self, images: Images, head: JournalHead) -> None:
        """Take the images of a batch that is durable."""
        self._waiting.update(images.rows)
        self._claims.extend(images.claims)
        self._offered_head = head
        self._has_work.set()
        if len(self._waiting) >= self._rows_max:
            self._flush_now.set()
            self.is_full = len(self._waiting) >= 8 * self._rows_max

    def peek(self, key: RowKey) -> Row | None:
        """The newest row that the tables may not have yet; it `is_gone` where they still have one that was deleted."""
        return self._waiting.get(key) or self._writing.get(key)

    async def drain(self) -> None:
        """Wait until the tables hold everything that was offered before this call."""
        goal = self._offered_head.number
        while self.checkpoint.number < goal and self._task is not None and not self._task.done():
            self._flush_now.set()
            self._written.clear()
            await self._written.wait()

    async def stop(self) -> None:
        """End the task at once; the next start writes the rest from the journal."""
        if self._task is not None:
            while not self._task.done():  # a driver may answer the first cancellation with an error of its own
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=CANCEL_AGAIN_S)
            self._task = None

    async def _run(self) -> None:
        try:
            while True:
                await self._has_work.wait()
                if not self._flush_now.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(FLUSH_MS / 1000):
                            await self._flush_now.wait()
                self._has_work.clear()
                self._flush_now.clear()
                await self._flush()
        except Exception as fault:
            self._on_failed(fault)
        finally:
            self._written.set()

    async def _flush(self) -> None:
        head, claims, self._claims = self._offered_head, self._claims, []
        self._writing, self._waiting, self.is_full = self._waiting, {}, False
        tables = by_table(self._writing)
        while True:
            try:
                await self._tables.write(tables, claims, head)
                break
            except Unavailable:
                await self._clock.sleep(RETRY_MS)
        self._writing = {}
        for at in range(0, max(1, len(claims)), CLAIMS_PER_TURN):  # also without claims: callers wait for capacity
            self._on_written(claims[at : at + CLAIMS_PER_TURN], head.number)
            await asyncio.sleep(0)
        self.checkpoint = head
        self._written.set()
