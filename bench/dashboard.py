"""Pages that people have open (OBS-001): processor time and memory that each viewer costs the node.

The node changes something that the page shows twice a second, as often as a page is told. The overview is read and
encoded once for all viewers: the first costs the most, each further one what it takes to send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from bench.api.servers import TOKEN, ServerProcess, running_server
from bench.measure import Table, at_most, show, table
from bench.processor_time import process_s

VIEWERS = 50
CHANGE_S = 0.5
MEMORY_KIB_MAX = 200
CPU_MS_MAX = 2
NONE, ONE, MANY = "no page open", "one page", "all pages"
MORE = "each further page"
HEAD = f"GET /v1/live HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
JSON = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}


class OpenPage:
    """A viewer that reads what it is sent and counts it."""

    def __init__(self) -> None:
        self.received = 0
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, port: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(HEAD)
        await reader.readuntil(b"event: overview")
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(1 << 16):
            self.received += len(chunk)

    async def close(self) -> None:
        assert self._reading is not None
        assert self._writer is not None
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._writer.close()


@asynccontextmanager
async def open_pages(port: int, number: int) -> AsyncIterator[list[OpenPage]]:
    pages = [OpenPage() for _ in range(number)]
    await asyncio.gather(*(page.open(port) for page in pages))
    try:
        yield pages
    finally:
        await asyncio.gather(*(page.close() for page in pages))


async def change_again_and_again(port: int) -> None:
    """A kind is paused and resumed: queue, alerts and verdict change on every page."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=JSON, timeout=60) as client:
        for number in range(1_000_000):
            method = "queue.resume" if number % 2 else "queue.pause"
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"kind": "AI"}}
            assert "result" in (await client.post("/rpc", json=call)).json()
            await asyncio.sleep(CHANGE_S)


class _Measured:
    """Figures of all rounds, by the number of pages."""

    def __init__(self) -> None:
        self.cpu_ms: dict[str, list[float]] = {}
        self.memory_kib: list[float] = []
        self.sent_kib: list[float] = []


async def _measure(server: ServerProcess, name: str, number: int, seconds: float, into: _Measured) -> None:
    before_kib = server.memory_kib()
    async with open_pages(server.port, number) as pages:
        began_s = process_s(server.pid)
        await asyncio.sleep(seconds)
        used_ms = 1_000 * (process_s(server.pid) - began_s) / seconds
        into.cpu_ms.setdefault(name, []).append(used_ms)
        if name == MANY:
            into.memory_kib.append(max(0, server.memory_kib() - before_kib) / number)
            into.sent_kib.append(sum(page.received for page in pages) / number / seconds / 1024)
    await asyncio.sleep(2 * CHANGE_S)  # until the node has noticed that they are gone


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """The same node with no page, one and many, in every round."""
    seconds, rounds, viewers = (1.0, 1, 5) if is_quick else (10.0, 5, VIEWERS)
    found = _Measured()
    async with running_server("guarded", folder / "dashboard") as server:
        changing = asyncio.create_task(change_again_and_again(server.port))
        try:
            for _ in range(rounds):
                for name, number in ((NONE, 0), (ONE, 1), (MANY, viewers)):
                    await _measure(server, name, number, seconds, found)
        finally:
            changing.cancel()
            await asyncio.gather(changing, return_exceptions=True)
    tables = _as_tables(found, viewers)
    for each in tables:
        print(show(each), end="\n\n", flush=True)
    return tables


def _as_tables(found: _Measured, viewers: int) -> list[Table]:
    pairs = zip(found.cpu_ms[MANY], found.cpu_ms[ONE], strict=True)
    found.cpu_ms[MORE] = [max(0.0, many - one) / (viewers - 1) for many, one in pairs]
    title = f"Processor time of the node with none, one and all of {viewers} pages open"
    cpu = table("dashboard-cpu", title, "ms a second", found.cpu_ms, [NONE, ONE, MANY, MORE], None)
    cpu.goals.append(at_most("each further page", found.cpu_ms[MORE], CPU_MS_MAX, " ms a second"))
    title = f"What each of {viewers} open pages costs the node"
    figures = {"memory": found.memory_kib, "sent in a second": found.sent_kib}
    memory = table("dashboard-memory", title, "KiB", figures, list(figures), None)
    memory.goals.append(at_most("memory of a page", found.memory_kib, MEMORY_KIB_MAX, " KiB"))
    return [cpu, memory]
