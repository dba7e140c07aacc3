"""Work of one's own: a program, a function and a server, called directly and through Holdfast by a client over HTTP.

All of them return their input, so that what is measured is the way there and back.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, NamedTuple

import httpx
from tests.loopback_ports import free_ports
from tests.stories.cli_runner import holdfast
from tests.stories.node_process import accepts_connections

from bench.data_flow.own_programs import PROGRAM, same
from bench.data_flow.real_network import BLOCK_MS, PATIENCE_S, RealNetwork
from bench.measure import Table, interleave, table
from bench.stores import Store
from holdfast import AsyncClient
from holdfast.client.job_lines import JobRequest

SLOTS = 16
FEE = 100
SMALL_BYTES = 128
MIB = 1 << 20
HTTP_LIMITS = {"HOLDFAST_HTTP__KEY_PER_S": "1000000", "HOLDFAST_HTTP__KEY_BURST": "1000000"}
Call = Callable[[bytes], Awaitable[bytes]]


class OwnWork(NamedTuple):
    """One sort of work: how it is called without Holdfast, and the payload of its jobs."""

    name: str
    directly: Call
    payload: Mapping[str, Any]


class OwnWorkNetwork(RealNetwork):
    """A node with its HTTP API, and one agent that offers a program, a function and a server."""

    def __init__(self, store: Store) -> None:
        self._http, self._server = free_ports(2)
        settings = {"HOLDFAST_HTTP__ENABLED": "true", "HOLDFAST_HTTP__PORT": str(self._http), **HTTP_LIMITS}
        super().__init__(store.place("own"), 1, SLOTS, settings)

    @property
    def server_url(self) -> str:
        return f"http://127.0.0.1:{self._server}/"

    async def _start(self) -> None:
        for agent in self.agents:
            agent.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            (agent.data / "agent.toml").write_text(
                f'[[executors]]\nsource = "exec"\nname = "program"\ntarget = "{PROGRAM}"\n'
                '[[executors]]\nsource = "python"\nname = "function"\ntarget = "bench.data_flow.own_programs:same"\n'
                f'[[executors]]\nsource = "http"\nkind = "AI"\nname = "server"\ntarget = "{self.server_url}"\n'
            )
        await super()._start()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncClient]:
        """Over HTTP, with a requester's token."""
        created = await asyncio.to_thread(holdfast, "key", "create", "--account", "alice", "--data", self.data)
        assert created.code == 0, created.err
        url = f"http://127.0.0.1:{self._http}"
        async with AsyncClient(url, created.out.strip(), timeout_s=PATIENCE_S) as client:
            yield client

    @asynccontextmanager
    async def server(self) -> AsyncIterator[None]:
        """The server that the agent asks, a process of its own."""
        command = (sys.executable, "-m", "bench.data_flow.own_programs", str(self._server))
        process = await asyncio.create_subprocess_exec(*command)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await accepts_connections(self._server):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.02)
            yield
        finally:
            process.kill()
            await process.wait()


class OwnWorkComparison:
    """How much Holdfast adds: to one job, to a megabyte of it, and to many at once."""

    def __init__(self, store: Store, *, is_quick: bool) -> None:
        self._network = OwnWorkNetwork(store)
        self._alone, self._many, self._large, self._mib = (2, 8, 1, 1) if is_quick else (20, 200, 3, 8)
        self._sorts: list[OwnWork] = []

    async def tables(self, rounds: int) -> list[Table]:
        network = self._network
        async with network.server(), network, network.client() as client, httpx.AsyncClient(timeout=PATIENCE_S) as http:
            self._client = client
            self._sorts = _sorts(http, network.server_url)
            for sort in self._sorts:
                await self._through(sort, b"warm")
            figures = await interleave([self._turn_of(sort) for sort in self._sorts], rounds)
        return [self._job_table(figures), self._size_table(figures), self._rate_table(figures)]

    # -------------------------------------------------------------------------------- turns

    def _turn_of(self, sort: OwnWork) -> Callable[[int], Awaitable[Mapping[str, float]]]:
        async def turn(_: int) -> Mapping[str, float]:
            found = dict[str, float]()
            for way, call in (("directly", sort.directly), ("Holdfast", lambda data: self._through(sort, data))):
                small = [await _took_ms(call, _data(SMALL_BYTES, at)) for at in range(self._alone)]
                large = [await _took_ms(call, _data(self._mib * MIB, at)) for at in range(self._large)]
                found[f"{sort.name}, {way}"] = median(small)
                found[f"{sort.name}, {way}, a MiB"] = (median(large) - median(small)) / self._mib
            found[f"{sort.name}, directly, a second"] = await self._rate_directly(sort)
            found[f"{sort.name}, Holdfast, a second"] = await self._rate_through(sort)
            return found

        return turn

    async def _through(self, sort: OwnWork, data: bytes) -> bytes:
        """One job: enqueued, waited for, read and compared with its digest."""
        receipt = await self._client.enqueue(sort.payload, FEE, input=data)
        return await self._client.result(await self._client.wait(receipt))

    async def _rate_directly(self, sort: OwnWork) -> float:
        places, began = asyncio.Semaphore(SLOTS), time.perf_counter()

        async def call(number: int) -> None:
            async with places:
                await sort.directly(_data(SMALL_BYTES, number))

        await asyncio.gather(*(call(number) for number in range(self._many)))
        return self._many / (time.perf_counter() - began)

    async def _rate_through(self, sort: OwnWork) -> float:
        """`enqueue_many`, then every output as its job completes."""
        began = time.perf_counter()
        requests = (JobRequest(sort.payload, FEE, input=_data(SMALL_BYTES, each)) for each in range(self._many))
        outputs = set[bytes]()
        async for outcome in self._client.as_completed(await self._client.enqueue_many(requests)):
            outputs.add(await self._client.result(outcome.unwrap()))
        assert len(outputs) == self._many
        return self._many / (time.perf_counter() - began)

    # -------------------------------------------------------------------------------- tables

    def _job_table(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"One job of own work, {SMALL_BYTES} bytes in and out, {self._alone} a round, client over HTTP"
        found = self._table("way-own-job", title, "ms", figures, "")
        found.notes.append(f"through Holdfast until its output is read: a block every {BLOCK_MS} ms is in it")
        return found

    def _size_table(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"What a MiB of input and output adds to it, jobs of {self._mib} MiB, {self._large} a round"
        found = self._table("way-own-size", title, "ms/MiB", figures, ", a MiB")
        found.notes.append("uploaded, fetched by the agent, returned by it and downloaded; synced, digests compared")
        return found

    def _rate_table(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"{self._many} jobs of own work, {SLOTS} at a time, enqueue_many and as_completed over HTTP"
        return self._table("way-own-rate", title, "jobs/s", figures, ", a second")

    def _table(self, name: str, title: str, unit: str, figures: Mapping[str, list[float]], what: str) -> Table:
        rows: dict[str, Sequence[float]] = {}
        for sort in self._sorts:
            directly, through = (figures[f"{sort.name}, {way}{what}"] for way in ("directly", "Holdfast"))
            rows |= {f"{sort.name}, directly": directly, f"{sort.name}, Holdfast": through}
            if unit != "jobs/s":
                added = [ours - theirs for ours, theirs in zip(through, directly, strict=True)]
                rows[f"{sort.name}, added by Holdfast"] = added
        return table(name, title, unit, rows, list(rows), None)


def _sorts(http: httpx.AsyncClient, server: str) -> list[OwnWork]:
    async def run_program(data: bytes) -> bytes:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(PROGRAM, stdin=pipe, stdout=pipe)
        return (await process.communicate(data))[0]

    async def call_function(data: bytes) -> bytes:
        return same(data)

    async def ask_server(data: bytes) -> bytes:
        return (await http.post(server, content=data)).content

    return [
        OwnWork("--exec, cat", run_program, {"kind": "COMPUTE", "spec": {"runtime": "program"}}),
        OwnWork("--python", call_function, {"kind": "COMPUTE", "spec": {"runtime": "function"}}),
        OwnWork("--http", ask_server, {"kind": "AI", "spec": {"model": "server"}}),
    ]


def _data(size: int, number: int) -> bytes:
    """Other bytes for each job, and each time."""
    return f"{number} {time.time_ns()} ".encode().ljust(size, b".")


async def _took_ms(call: Call, data: bytes) -> float:
    began = time.perf_counter()
    assert await call(data) == data
    return (time.perf_counter() - began) * 1_000
