"""How long a running node leaves a question unanswered: what its clients feel of a long step of its loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from holdfast.client.node_socket import NodeSocket

REST_S = 0.001
PATIENCE_S = 120.0


class AnswerProbe:
    """The longest answer since it was last asked; a question is under way nearly all the time."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._asked_at = 0.0

    def take_ms(self) -> float:
        """The longest one, the one under way included; then it starts again."""
        under_way = time.perf_counter() - self._asked_at if self._asked_at else 0.0
        longest, self._longest_s = max(self._longest_s, under_way), 0.0
        return longest * 1e3

    async def run(self, data: Path) -> None:
        async with NodeSocket(data, PATIENCE_S, answer_timeout_s=PATIENCE_S) as client:
            while True:
                self._asked_at = time.perf_counter()
                await client.status()
                self._longest_s = max(self._longest_s, time.perf_counter() - self._asked_at)
                self._asked_at = 0.0
                await asyncio.sleep(REST_S)


@asynccontextmanager
async def probing(data: Path) -> AsyncIterator[AnswerProbe]:
    """The node of this folder is asked until the end."""
    probe = AnswerProbe()
    task = asyncio.create_task(probe.run(data))
    try:
        yield probe
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
