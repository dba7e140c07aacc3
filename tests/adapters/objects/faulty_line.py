"""A line to an object store that fails on command: requests are cut off, or carried out and their answers lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.loopback_ports import free_port


class FaultyLine:
    """Passes bytes on both ways. A fault hits the next connections or requests, as many as it is set to."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.port = free_port()
        self.cut_requests = 0
        """Requests that never arrive …"""
        self.cut_answers = 0
        """… that arrive, and whose answers are lost …"""
        self.cut_bodies = 0
        """… and answers that end in their middle."""
        self.status_503 = 0
        self.faults = 0
        """How many there were."""
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            there, back = await asyncio.open_connection(*self._target)
            try:
                while await self._exchange(reader, writer, there, back):
                    pass
            finally:
                back.transport.abort()
        writer.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        if self._hits("cut_requests"):
            return False
        body = await reader.readexactly(_length(head))
        if self._hits("status_503"):
            writer.write(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return True
        back.write(head + body)
        answer = await there.readuntil(b"\r\n\r\n")
        if self._hits("cut_answers"):
            return False
        rest = b"" if head.startswith(b"HEAD ") else await _read_body(answer, there)
        if rest and self._hits("cut_bodies"):
            writer.write(answer + rest[: len(rest) // 2])
            await writer.drain()
            return False
        writer.write(answer + rest)
        await writer.drain()
        return True

    def _hits(self, fault: str) -> bool:
        left = getattr(self, fault)
        if not left:
            return False
        setattr(self, fault, left - 1)
        self.faults += 1
        return True


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def _read_body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    if b"transfer-encoding: chunked" not in head.lower():
        return await reader.readexactly(_length(head))
    raw = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        raw += line + await reader.readexactly(size + 2)
        if size == 0:
            return raw


@asynccontextmanager
async def faulty_line(target: str) -> AsyncIterator[FaultyLine]:
    line = FaultyLine(target)
    server = await asyncio.start_server(line.serve, "127.0.0.1", line.port, limit=1 << 20)
    try:
        yield line
    finally:
        server.close()
        for task in list(line.tasks):
            task.cancel()
        await asyncio.gather(*line.tasks, return_exceptions=True)
