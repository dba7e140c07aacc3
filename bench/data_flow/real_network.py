"""A node and its agents as real processes, jobs submitted to them, and when each job reached which stage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import msgspec
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.node_process import NodeProcess, on_postgres

from bench.stores import StorePlace
from holdfast.client import Client

PATIENCE_S = 120.0
BLOCK_MS = 200
SLOTS = 16
SETTINGS = {
    "HOLDFAST_POLICY__CHAIN__BLOCK_MS": str(BLOCK_MS),
    "HOLDFAST_POLICY__CHAIN__IDLE_BLOCK_MS": "60000",
    "HOLDFAST_POLICY__CHAIN__FINALITY_DEPTH": "3",
    "HOLDFAST_POLICY__LEASE__AI_MS": "30000",
    "HOLDFAST_POLICY__PROVIDER__HEARTBEAT_MS": "1000",
    "HOLDFAST_GRPC__ENABLED": "true",
    "HOLDFAST_LOG__LEVEL": "warning",
}
PROMPT_BYTES = 128


class JobTimes(msgspec.Struct):
    """One job's way: what the events say in milliseconds, and when we asked and were told, in seconds of our clock."""

    asked_s: float = 0.0
    enqueued: int = 0
    leased: int = 0
    acked: int = 0
    submitted: int = 0
    accepted: int = 0
    height: int = 0
    readable: int = 0
    attempts: int = 0
    notified_leased_s: float = 0.0
    notified_readable_s: float = 0.0


class JobRunTimes(msgspec.Struct):
    """Some jobs that went the whole way, or at least its first step."""

    took_s: float
    jobs: list[JobTimes]


class RealNetwork:
    """A node with some agents in one place; it keeps its data from one start to the next."""

    def __init__(self, spot: StorePlace, agents: int) -> None:
        self._spot, self._names = spot, [f"agent{number}" for number in range(agents)]
        self.data = spot.folder / "node"
        self._keys = count()
        self._is_staked = False

    async def __aenter__(self) -> RealNetwork:
        spot, port = self._spot, free_ports(1)[0]
        spot.folder.mkdir(parents=True, exist_ok=True)
        store = {} if spot.address is None else on_postgres(spot.address)
        self.node = NodeProcess(self.data, "node", SETTINGS | store | {"HOLDFAST_GRPC__PORT": str(port)})
        self.agents = [AgentProcess(spot.folder / name, name, port, SLOTS) for name in self._names]
        try:
            await self._start()
        except BaseException:
            self.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.gather(*(agent.stop() for agent in self.agents))
            await self.node.stop()
        finally:
            self.end()

    def end(self) -> None:
        for agent in self.agents:
            agent.end()
        self.node.end()

    async def _start(self) -> None:
        """Ready when every agent has been heard of since: before that, leases would wait for their holders."""
        await self.node.up()
        async with Client(self.data, PATIENCE_S) as client:
            began_ms = (await client.status())["time_ms"]
            for agent in self.agents:
                agent.up()
            if not self._is_staked:
                await client.mint(bytes(32), "alice", 10**12)
                for number, each in enumerate(await self._registered(client, lambda _: True), start=1):
                    await _stake(client, each, bytes([number]) * 32)
                self._is_staked = True
            await self._registered(
                client, lambda each: each["why_not"] is None and each["provider"]["heartbeat_ms"] > began_ms
            )

    async def _registered(self, client: Client, is_ready: Callable[[Any], bool]) -> list[Any]:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found: list[Any] = (await client.call("aicf.listProviders"))["providers"]
                if sum(map(is_ready, found)) == len(self.agents):
                    return found
                await asyncio.sleep(0.05)

    # ------------------------------------------------------------------------------------ submitting

    async def enqueue_only(self, callers: int, number: int) -> JobRunTimes:
        """Until every caller has its receipts; no agent runs."""
        began, jobs = time.perf_counter(), dict[str, JobTimes]()
        await self._enqueue(callers, number, jobs)
        return JobRunTimes(time.perf_counter() - began, list(jobs.values()))

    async def run_jobs(self, callers: int, number: int) -> JobRunTimes:
        """Until every job is readable, as one who follows the events learns of it."""
        async with Client(self.data, PATIENCE_S) as client:
            cursor = (await client.status())["event"]
            jobs: dict[str, JobTimes] = {}
            began = time.perf_counter()
            following = asyncio.create_task(_follow_events(client, cursor, jobs, number))
            try:
                await self._enqueue(callers, number, jobs)
                async with asyncio.timeout(PATIENCE_S):
                    ended = await following
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        return JobRunTimes(ended - began, list(jobs.values()))

    async def one_by_one(self, number: int) -> JobRunTimes:
        """The next job when the last one is readable: nothing waits for anything but its own way."""
        walks = [await self.run_jobs(1, 1) for _ in range(number)]
        return JobRunTimes(sum(walk.took_s for walk in walks), [job for walk in walks for job in walk.jobs])

    async def _enqueue(self, callers: int, number: int, jobs: dict[str, JobTimes]) -> None:
        async def call(share: int) -> None:
            async with Client(self.data, PATIENCE_S) as client:
                for _ in range(share):
                    key = f"{time.time_ns()} {next(self._keys)}"
                    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": key.ljust(PROMPT_BYTES, ".")}}
                    asked_s = time.perf_counter()
                    receipt = await client.enqueue(payload, 100, "alice", key)
                    jobs.setdefault(receipt["task_id"], JobTimes()).asked_s = asked_s

        more = number % callers
        await asyncio.gather(*(call(number // callers + (each < more)) for each in range(callers)))


async def _stake(client: Client, shown: Any, request: bytes) -> None:
    provider, amount = shown["provider"], shown["stake_min"]
    await client.mint(request, provider["account"], amount)
    await client.call("provider.stake", provider_id=provider["id"], amount=amount, request=request.hex())


async def _follow_events(client: Client, cursor: int, jobs: dict[str, JobTimes], number: int) -> float:
    """Note when each job is where, until `number` are readable; returns when that was."""
    leases: dict[str, JobTimes] = {}
    head, waiting, readable = (await client.call("chain.getHead"))["block"]["height"], list[JobTimes](), 0
    async for told in client.follow(cursor):
        event, now_s = told["event"], time.perf_counter()
        match told["type"]:
            case "jobAdmitted":
                jobs.setdefault(event["id"], JobTimes()).enqueued = event["enqueue_ms"]
            case "jobAssigned":
                job = leases[event["lease_id"]] = jobs[event["job_id"]]
                job.leased, job.notified_leased_s, job.attempts = event["t_start_ms"], now_s, event["attempt"] + 1
            case "leaseAcked":
                leases[event["id"]].acked = event["at_ms"]
            case "completionSubmitted":
                job = leases[event["lease_id"]]
                job.submitted, job.acked = event["at_ms"], job.acked or event["at_ms"]
            case "jobCompleted":
                job = leases[event["lease_id"]]
                job.accepted, job.height = event["ended_ms"], head + 1
                waiting.append(job)
            case "blockSealed":
                head = event["height"]
                for job in waiting:
                    job.readable, job.notified_readable_s = event["time_ms"], now_s
                readable += len(waiting)
                waiting = []
                if readable >= number:
                    return now_s
    raise AssertionError("the events ended")
