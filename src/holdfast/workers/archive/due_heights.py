"""Which heights are to be archived now (ARC-001, ARC-003), without reading all of them at every block.

Heights become final in their order, so new ones are found above the last one seen. What has to wait lies in a heap by
its time. What changes otherwise (a retry by hand, a record that became suspect) is found by a scan of all heights that
are in memory, in small steps and as seldom as it takes long.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from contextlib import suppress
from typing import Final

from holdfast.core.archive.decide import is_unarchived
from holdfast.core.base.values import Height
from holdfast.core.chain.model import final_height
from holdfast.core.validator.model import validator_set
from holdfast.engine.loop import Engine

QUEUE_MAX: Final = 1_000
"""Heights that are lined up at a time, the lowest first; the others are found again by a scan."""
STEP: Final = 256
"""Heights that are looked at before others get a turn."""
RESCAN_S: Final = 0.5
RESCAN_SHARE: Final = 20
"""A scan that takes long is repeated after 20 times its duration."""


class DueHeights:
    """The heights of one proposer that wait for the archive; a height that is taken does not wait any more."""

    def __init__(self, engine: Engine, proposer: bytes, queue_max: int = QUEUE_MAX) -> None:
        self._engine, self._proposer, self._queue_max = engine, proposer, queue_max
        self._ready: list[Height] = []
        self._later: list[tuple[int, Height]] = []
        self._known: set[Height] = set()
        """Ready or later."""
        self._taken: set[Height] = set()
        """Under way: a scan does not find them a second time."""
        self._is_cut = False
        """Whether more heights are due than the queue takes: they are found again when it is empty."""
        self._seen = Height(0)
        """Every final height up to this one was looked at."""
        self._next_scan_s = 0.0
        self.queue_len = 0
        """Blobs that wait, as of the last scan."""

    async def wait_for_work(self, changed: asyncio.Event) -> None:
        """Until a block becomes final, a retry is due or a scan is; most changes of the state are neither."""
        while not self.has_work():
            left_s = self._next_scan_s - time.monotonic()
            if left_s <= 0:
                return
            changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await changed.wait()

    def has_work(self) -> bool:
        is_due = bool(self._later) and self._later[0][0] <= self._engine.now_ms()
        return bool(self._ready) or is_due or final_height(self._engine.undurable_state) > self._seen

    def take(self) -> Height | None:
        """The lowest height that is due."""
        while self._later and self._later[0][0] <= self._engine.now_ms():
            heapq.heappush(self._ready, heapq.heappop(self._later)[1])
        while self._ready:
            height = heapq.heappop(self._ready)
            self._known.discard(height)
            if self._due_ms(height) is not None:
                self._taken.add(height)
                return height
        return None

    def finish(self, height: Height) -> None:
        """It is archived, or waits for its next attempt."""
        self._taken.discard(height)

    async def refresh(self) -> None:
        """Take in heights that became final, or all of them where a scan is due."""
        if time.monotonic() >= self._next_scan_s or (self._is_cut and not self._ready):
            await self.rescan()
            return
        state = self._engine.undurable_state
        final, new = final_height(state), list[Height]()
        for height in reversed(state.blob_heights):
            if height <= self._seen:
                break
            if height <= final:
                new.append(height)
        for height in new:
            self._add(height)
        self._seen = Height(max(self._seen, final))

    async def rescan(self) -> None:
        """Look at every height in memory."""
        began = time.monotonic()
        final = final_height(self._engine.undurable_state)
        self._ready, self._later, self._known, self._seen, queue = [], [], set(), final, 0
        self._is_cut = False
        for number, height in enumerate(list(self._engine.undurable_state.blob_heights), 1):
            if height <= final:
                queue += self._add(height)
            if number % STEP == 0:
                await asyncio.sleep(0)
        self.queue_len = queue
        ended = time.monotonic()
        self._next_scan_s = ended + max(RESCAN_S, RESCAN_SHARE * (ended - began))

    def _add(self, height: Height) -> int:
        """How many of its blobs wait."""
        due_ms = self._due_ms(height)
        if due_ms is None or height in self._known:
            return 0
        if height not in self._taken:
            self._line_up(height, due_ms)
        return sum(is_unarchived(live.blob) for live in self._engine.undurable_state.blob_heights[height])

    def _line_up(self, height: Height, due_ms: int) -> None:
        if due_ms > self._engine.now_ms():
            heapq.heappush(self._later, (due_ms, height))
        elif len(self._ready) < self._queue_max:
            heapq.heappush(self._ready, height)
        else:
            self._is_cut = True
            return
        self._known.add(height)

    def _due_ms(self, height: Height) -> int | None:
        """When its blobs may be uploaded; None where nothing of ours waits there."""
        state = self._engine.undurable_state
        lives = state.blob_heights.get(height, ())
        waiting = [live.blob for live in lives if is_unarchived(live.blob) and not live.blob.is_pruned]
        if not waiting or not validator_set(state).speaks_for(self._proposer, waiting[0].proposer):
            return None
        return max(blob.retry_ms for blob in waiting)
