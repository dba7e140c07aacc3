"""What has come on a stream of evidence and is not stored yet: bounded, taken in groups (SEC-001)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from holdfast.core.evidence.marks import RECORDS_BYTES_MAX
from holdfast.core.refusal import Refused, Unavailable
from holdfast.doors.grpc.agentdesk import AgentDesk, requests_of
from holdfast.doors.grpc.handling import Context
from holdfast.doors.witness import Tally

CREDIT_BYTES: Final = 4 << 20
"""How much may be on its way beyond the mark."""
GROUP_BYTES_MAX: Final = min(1 << 20, RECORDS_BYTES_MAX)
"""What piled up meanwhile is stored together, up to about this much."""
GROUP_MESSAGES_MAX: Final = 8_192
MESSAGE_BYTES: Final = 64
"""What a message takes beside its records: also one without any counts, else there could be any number of them."""
WRITE_S: Final = 30.0
"""Who takes no acks for so long is let go of."""
_CLOSING: Final = ("ENG-006", "the node stops", "connect again in a moment")
_TOO_SLOW: Final = Refused("SEC-001", f"no ack was taken for {WRITE_S:g} s", "read the acks", "BackPressure")
Check = Callable[[Any], Refused | None]


class Inbox:
    """Messages of one stream; who sends more than its credit waits."""

    def __init__(self, size_of: Callable[[Any], int], why_not: Check, tally: Tally) -> None:
        """`why_not` judges a message before it is kept: where it is refused, nothing after it is read."""
        self._size_of, self._why_not, self._tally = size_of, why_not, tally
        self._waiting: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._is_over = False
        self._fault: Refused | Exception | None = None

    async def fill(self, context: Context) -> None:
        """Read on while the last ones are being stored."""
        fault: Refused | Exception | None = None
        try:
            async for request in requests_of(context):
                if (fault := self._why_not(request)) is not None:
                    break
                await self.put(request)
        except Exception as raised:
            fault = raised
        self._end(fault)

    async def put(self, message: Any) -> None:
        if self._bytes > CREDIT_BYTES:
            self._tally.credit_stalls += 1
        while self._bytes > CREDIT_BYTES:
            self._room.clear()
            await self._room.wait()
        size = self._size_of(message)
        self._waiting.append((message, size))
        self._bytes += size + MESSAGE_BYTES
        self._news.set()

    def close(self) -> None:
        """The door closes: what is not being stored yet comes again on the next stream."""
        self._waiting.clear()
        self._end(Unavailable(*_CLOSING))

    def _end(self, fault: Refused | Exception | None) -> None:
        if not self._is_over:
            self._is_over, self._fault = True, fault
            self._news.set()

    async def group(self) -> list[Any] | Refused | None:
        """What has piled up, within bounds; at the end how it ended."""
        while not self._waiting:
            if isinstance(self._fault, Exception):
                raise self._fault
            if self._is_over:
                return self._fault
            self._news.clear()
            await self._news.wait()
        message, total = self._waiting.popleft()
        taken = [message]
        while self._waiting and len(taken) < GROUP_MESSAGES_MAX and total + self._waiting[0][1] <= GROUP_BYTES_MAX:
            message, size = self._waiting.popleft()
            taken.append(message)
            total += size
        self._bytes -= total + MESSAGE_BYTES * len(taken)
        self._room.set()
        return taken


@asynccontextmanager
async def filling(at: AgentDesk, context: Context, inbox: Inbox) -> AsyncIterator[None]:
    """While this lasts, what comes is put into the inbox; it ends when the door closes."""
    reading = asyncio.create_task(inbox.fill(context), name="records of a sender")
    try:
        with at.until_closing(inbox.close):
            yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def tell(context: Context, message: Any) -> Refused | None:
    """Write; a no where the other side takes nothing."""
    try:
        async with asyncio.timeout(WRITE_S):
            await context.write(message)
    except TimeoutError:
        return _TOO_SLOW
    return None


Piece = tuple[int, list[bytes]]
"""A sequence, and lines from it on."""


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces that follow each other as one."""
    found: list[Piece] = []
    for first, lines in pieces:
        if found and found[-1][0] + len(found[-1][1]) == first:
            found[-1][1].extend(lines)
        else:
            found.append((first, list(lines)))
    return found
