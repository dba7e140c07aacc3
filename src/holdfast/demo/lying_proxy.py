"""An archive that lies: it stands before the gateway, stores what it is given, and returns other bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from holdfast.demo.processes import DemoFailed

HEAD_END: Final = b"\r\n\r\n"
HEAD_BYTES_MAX: Final = 64 << 10
READING: Final = b"GET /binary/"


class LyingProxy:
    """One request a connection, as the node's archiver sends them. It lies until it is told not to."""

    def __init__(self, gateway_port: int) -> None:
        self._gateway_port = gateway_port
        self._server: asyncio.Server | None = None
        self.is_lying = True

    async def open(self, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=HEAD_BYTES_MAX)
        except OSError as fault:
            raise DemoFailed(f"the lying archive cannot listen on port {port}: {fault.strerror}") from fault

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(HEAD_END)
            body = await reader.readexactly(_content_length(head))
            answer = await self._forward(head, body)
            if self.is_lying and head.startswith(READING) and answer:
                answer = answer[:-1] + bytes([answer[-1] ^ 1])
            writer.write(answer)
            await writer.drain()
        writer.close()

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway_port)
        try:
            writer.write(head[:-2] + b"connection: close\r\n\r\n" + body)
            return await reader.read()
        finally:
            writer.close()


def _content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
