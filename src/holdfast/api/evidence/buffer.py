"""Buffers evidence that was received on a stream and is not stored yet: bounded, read in groups (SEC-001)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, Final

from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.evidence.model import RECORDS_BYTES_MAX

CREDIT_BYTES: Final = 4 << 20
"""How much a sender may send beyond the acknowledged sequence."""
GROUP_BYTES_MAX: Final = min(1 << 20, RECORDS_BYTES_MAX)
"""Messages that arrived in the meantime are stored together, up to about this size."""
GROUP_MESSAGES_MAX: Final = 8_192
MESSAGE_BYTES: Final = 64
"""Overhead of a message. A message without records counts as well, so that their number is bounded."""
_CLOSING: Final = ("ENG-006", "the node is stopping", "connect again in a moment")
CheckMessage = Callable[[Any], Refused | None]


class EvidenceBuffer:
    """Messages of one stream. A sender that exceeds its credit has to wait."""

    def __init__(self, size_of: Callable[[Any], int], why_not: CheckMessage, metrics: EvidenceMetrics) -> None:
        """`why_not` checks a message before it is buffered; after a refusal the stream is not read any further."""
        self._size_of, self._why_not, self._metrics = size_of, why_not, metrics
        self._waiting: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._has_news, self._has_room, self._may_be_full = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_over = False
        self._fault: Refused | Exception | None = None

    async def fill(self, requests: AsyncIterable[Any]) -> None:
        """Buffer a stream to its end, while earlier messages are being stored."""
        fault: Refused | Exception | None = None
        try:
            async for request in requests:
                if (fault := self._why_not(request)) is not None:
                    break
                await self.put(request)
        except Exception as raised:
            fault = raised
        self._end(fault)

    async def put(self, message: Any) -> None:
        if self._bytes > CREDIT_BYTES:
            self._metrics.credit_stalls += 1
        while self._bytes > CREDIT_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        size = self._size_of(message)
        self._waiting.append((message, size))
        self._bytes += size + MESSAGE_BYTES
        self._has_news.set()
        if self._is_full:
            self._may_be_full.set()

    def close(self) -> None:
        """The server closes: the sender repeats on its next stream what is not being stored yet."""
        self._waiting.clear()
        self._end(Unavailable(*_CLOSING))

    def _end(self, fault: Refused | Exception | None) -> None:
        if not self._is_over:
            self._is_over, self._fault = True, fault
            self._has_news.set()

    @property
    def _is_full(self) -> bool:
        """So much waits that the next group does not grow by waiting longer."""
        return self._bytes >= GROUP_BYTES_MAX

    async def wait_full_group(self, end: asyncio.Future[Any]) -> bool:
        """Whether a full group waits; False when `end` is done first."""
        self._may_be_full.clear()
        end.add_done_callback(self._wake_full)
        try:
            while not self._is_full and not end.done():
                await self._may_be_full.wait()
                self._may_be_full.clear()
        finally:
            end.remove_done_callback(self._wake_full)
        return self._is_full

    def _wake_full(self, _: asyncio.Future[Any]) -> None:
        self._may_be_full.set()

    async def next_group(self) -> list[Any] | Refused | None:
        """The messages that wait, within bounds. At the end of the stream: its refusal, or None; a fault is raised."""
        while not self._waiting:
            if isinstance(self._fault, Exception):
                raise self._fault
            if self._is_over:
                return self._fault
            self._has_news.clear()
            await self._has_news.wait()
        message, total = self._waiting.popleft()
        group = [message]
        while self._waiting and len(group) < GROUP_MESSAGES_MAX and total + self._waiting[0][1] <= GROUP_BYTES_MAX:
            message, size = self._waiting.popleft()
            group.append(message)
            total += size
        self._bytes -= total + MESSAGE_BYTES * len(group)
        self._has_room.set()
        return group


LineRun = tuple[int, list[bytes]]
"""The sequence of the first line, and lines that follow each other."""


def join_consecutive(runs: Iterable[LineRun]) -> list[LineRun]:
    """Runs that follow each other become one."""
    joined: list[LineRun] = []
    for first, lines in runs:
        if joined and joined[-1][0] + len(joined[-1][1]) == first:
            joined[-1][1].extend(lines)
        else:
            joined.append((first, list(lines)))
    return joined
