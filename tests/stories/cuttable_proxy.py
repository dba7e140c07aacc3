"""A line between agents and node that the test can cut: bytes are passed on until then, both ways."""

from __future__ import annotations

import asyncio


class CuttableProxy:
    """Listens on one port and joins whoever comes with another one."""

    def __init__(self, listen: int, target: int) -> None:
        self.port, self._target = listen, target
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", self.port)

    def cut(self) -> None:
        """Every connection breaks at once, in the middle of whatever it carries."""
        for end in list(self._ends):
            end.transport.abort()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the test is over, or nobody is there, and whoever came learns it by the broken line
        finally:
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends |= {writer, back}
        try:
            await asyncio.gather(_copy_bytes(reader, back), _copy_bytes(there, writer))
        finally:
            self._ends -= {writer, back}
            back.transport.abort()


async def _copy_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while part := await reader.read(65_536):
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
