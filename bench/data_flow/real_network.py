"""A node and its agents as real processes, jobs submitted to them, and when each job reached which stage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Self

import msgspec
from tests.loopback_ports import free_ports
from tests.stories.agent_process import AgentProcess
from tests.stories.node_process import NodeProcess, on_postgres

from bench import processor_time
from bench.data_flow.raised_limits import raised_limits
from bench.stores import StorePlace
from holdfast.client.node_socket import NodeSocket

PATIENCE_S = 120.0
BLOCK_MS = 200
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
    notified_completed_s: float = 0.0
    notified_readable_s: float = 0.0


class JobRunTimes(msgspec.Struct):
    """Some jobs that went the whole way, or at least its first step; processor time is in milliseconds a job."""

    took_s: float
    jobs: list[JobTimes]
    completed_s: float = 0.0
    """Until the last one was known to be completed; `took_s` is until the last one was readable."""
    node_ms: float = 0.0
    agent_ms: float = 0.0
    client_ms: float = 0.0


class MeasuredAgent(AgentProcess):
    """An agent whose processor time is read."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class RealNetwork:
    """A node with some agents in one place; it keeps its data from one start to the next."""

    def __init__(self, spot: StorePlace, agents: int, slots: int, settings: Mapping[str, str] | None = None) -> None:
        self._spot, self._names, self._slots = spot, [f"agent{number}" for number in range(agents)], slots
        self._settings = SETTINGS | dict(settings or {})
        self.data = spot.folder / "node"
        self._keys = count()
        self._is_staked = False

    async def __aenter__(self) -> Self:
        spot, port = self._spot, free_ports(1)[0]
        spot.folder.mkdir(parents=True, exist_ok=True)
        store = {} if spot.address is None else on_postgres(spot.address)
        settings = self._settings | raised_limits(self._slots) | store | {"HOLDFAST_GRPC__PORT": str(port)}
        self.node = NodeProcess(self.data, "node", settings)
        self.agents = [MeasuredAgent(spot.folder / name, name, port, self._slots) for name in self._names]
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
        async with NodeSocket(self.data, PATIENCE_S) as client:
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

    async def _registered(self, client: NodeSocket, is_ready: Callable[[Any], bool]) -> list[Any]:
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
        """Until every job is readable, as one who follows the events learns of it; enqueues are included."""

        async def enqueue(jobs: dict[str, JobTimes]) -> None:
            await self._enqueue(callers, number, jobs)

        return await self._follow(number, enqueue)

    async def drain_jobs(self, callers: int, number: int) -> JobRunTimes:
        """The same for jobs that were enqueued before: their kind is paused meanwhile, and the clock runs from then."""
        async with NodeSocket(self.data, PATIENCE_S) as client:
            await client.call("queue.pause", kind="AI", reason="bench")

            async def resume(_: dict[str, JobTimes]) -> None:
                await client.call("queue.resume", kind="AI")

            known: dict[str, JobTimes] = {}
            cursor = (await client.status())["event"]
            await self._enqueue(callers, number, known)
            return await self._follow(number, resume, cursor)

    async def _follow(
        self, number: int, begin: Callable[[dict[str, JobTimes]], Awaitable[None]], cursor: int | None = None
    ) -> JobRunTimes:
        """Follow events until `number` jobs are readable; the clock runs from when `begin` is called."""
        async with NodeSocket(self.data, PATIENCE_S) as client:
            cursor = (await client.status())["event"] if cursor is None else cursor
            jobs: dict[str, JobTimes] = {}
            following = asyncio.create_task(_follow_events(client, cursor, jobs, number))
            used, began = self._used(), time.perf_counter()
            try:
                await begin(jobs)
                async with asyncio.timeout(PATIENCE_S):
                    ended = await following
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
            spent = [(after - before) * 1e3 / number for before, after in zip(used, self._used(), strict=True)]
            await client.call("cap.getResult", task_id=next(iter(jobs)))  # it can be read as promised
        times = list(jobs.values())
        completed_s = max(job.notified_completed_s for job in times) - began
        return JobRunTimes(ended - began, times, completed_s, *spent)

    def _used(self) -> tuple[float, float, float]:
        """Seconds of processor time: the node with all its processes, all agents with theirs, this client."""
        agents = sum(processor_time.process_s(agent.pid) for agent in self.agents)
        return processor_time.process_s(self.node.pid), agents, time.process_time()

    def memory_bytes(self) -> list[int]:
        """Of the node's processes, the owner first."""
        return list(processor_time.family_memory_bytes(self.node.pid).values())

    async def one_by_one(self, number: int) -> JobRunTimes:
        """The next job when the last one is readable: nothing waits for anything but its own way."""
        walks = [await self.run_jobs(1, 1) for _ in range(number)]
        return JobRunTimes(sum(walk.took_s for walk in walks), [job for walk in walks for job in walk.jobs])

    async def _enqueue(self, callers: int, number: int, jobs: dict[str, JobTimes]) -> None:
        async def call(share: int) -> None:
            async with NodeSocket(self.data, PATIENCE_S) as client:
                for _ in range(share):
                    key = f"{time.time_ns()} {next(self._keys)}"
                    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": key.ljust(PROMPT_BYTES, ".")}}
                    asked_s = time.perf_counter()
                    params = {"payload": payload, "max_fee": 100, "caller": "alice", "idempotency_key": key}
                    receipt = await client.call("cap.enqueue", **params)
                    jobs.setdefault(receipt["task_id"], JobTimes()).asked_s = asked_s

        more = number % callers
        await asyncio.gather(*(call(number // callers + (each < more)) for each in range(callers)))


async def _stake(client: NodeSocket, shown: Any, request: bytes) -> None:
    provider, amount = shown["provider"], shown["stake_min"]
    await client.mint(request, provider["account"], amount)
    await client.call("provider.stake", provider_id=provider["id"], amount=amount, request=request.hex())


async def _follow_events(client: NodeSocket, cursor: int, jobs: dict[str, JobTimes], number: int) -> float:
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
                job.accepted, job.height, job.notified_completed_s = event["ended_ms"], head + 1, now_s
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
