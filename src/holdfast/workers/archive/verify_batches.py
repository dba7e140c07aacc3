"""Blobs that come back from the archive, verified together where they come together (ARC-004).

A call to a KZG process costs a hop, and a batch costs less than its blobs one by one. So one call runs at a time, and
whatever arrives meanwhile is the next one: a single blob never waits for others.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from holdfast.ports.blobs import Kzg, KzgWork

BATCH_MAX: Final = 16
"""Blobs of one call: 2 MiB that are copied to another process."""


class _WaitingBlob(NamedTuple):
    raw: bytes
    work: KzgWork
    answer: asyncio.Future[bool]


class VerifyBatches:
    """One caller of KZG on behalf of many."""

    def __init__(self, kzg: Kzg) -> None:
        self._kzg = kzg
        self._waiting: list[_WaitingBlob] = []
        self._running: asyncio.Task[None] | None = None

    async def is_same(self, raw: bytes, work: KzgWork) -> bool:
        """Whether these are the bytes that a block commits to; Unavailable where KZG failed."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_WaitingBlob(raw, work, answer))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            try:
                answers = await self._kzg.verify([(each.raw, each.work) for each in batch])
            except Exception as fault:  # whoever waits is told, whatever it was
                for each in batch:
                    if not each.answer.done():  # whoever asked may have been cancelled
                        each.answer.set_exception(fault)
                continue
            for each, is_same in zip(batch, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(is_same)
