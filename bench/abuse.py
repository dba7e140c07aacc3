"""Abuse (SEC-002): the p99 of an honest client with a key while somebody abuses the node, against its quiet p99."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx
from tests.loopback_ports import free_ports
from tests.stories.node_process import NodeProcess

from bench.abuse_cases import CASES, JSON, LOW_PRIORITY, OVER_GRPC, RETRY_S, rpc_call
from bench.api.servers import KEY, OTHER_KEY, OTHER_TOKEN, SECRET, TOKEN
from bench.measure import Goal, Table, show, table
from holdfast.client.node_socket import NodeSocket
from holdfast.core.key.model import secret_hash

QUIET = "quiet"
TIMES_MAX = 5
"""The factor below which an honest client's p99 stays, against its quiet p99."""
CALLERS = 8
PATIENCE_S = 60.0
BLOCK_MS = 2_000


async def p99_ms(port: int, seconds: float) -> float:
    """Of one honest client with a key, a request at a time on a few connections that are kept."""
    took: list[float] = []

    async def ask() -> None:
        headers = JSON | {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                began = time.perf_counter()
                answer = await client.post("/rpc", content=rpc_call("node.getStatus"))
                took.append(time.perf_counter() - began)
                assert "result" in answer.json(), answer.text[:200]
                await asyncio.sleep(0.01)

    await asyncio.gather(*(ask() for _ in range(CALLERS)))
    return 1_000 * sorted(took)[int(len(took) * 0.99)]


@contextlib.asynccontextmanager
async def abuser(case: str, port: int, seconds: float) -> AsyncIterator[None]:
    """The abuser's process, ended by its pid. One that has failed has abused nothing."""
    words = (*LOW_PRIORITY, sys.executable, "-m", "bench.abuse_cases", case, str(port), str(seconds))
    process = await asyncio.create_subprocess_exec(*words)
    try:
        await asyncio.sleep(min(1.0, seconds / 2))
        yield
        assert not process.returncode, f"{case}: the abuser failed"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def abused_node(folder: Path, jobs: int) -> AsyncIterator[tuple[int, int]]:
    """A node with the limits that a node has, and jobs of the abuser; its ports of HTTP and gRPC."""
    http, over_grpc = free_ports(2)
    settings = {"HOLDFAST_HTTP__ENABLED": "true", "HOLDFAST_HTTP__PORT": str(http)}
    settings |= {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(over_grpc)}
    node = NodeProcess(folder, "node", settings | {"HOLDFAST_POLICY__CHAIN__BLOCK_MS": str(BLOCK_MS)})
    try:
        await node.up()
        async with NodeSocket(node.data, PATIENCE_S) as local:
            hashed = secret_hash(SECRET.encode()).hex()
            await local.call("key.createKey", id=KEY, secret=hashed, role="operator")
            await local.call("key.createKey", id=OTHER_KEY, secret=hashed, role="requester", account="mallory")
            await local.mint(bytes(32), "mallory", jobs)
            await _enqueue(http, jobs)
            while (await local.call("chain.getHead"))["block"]["height"] < 1:  # noqa: ASYNC110 - another process
                await asyncio.sleep(RETRY_S)
        yield http, over_grpc
    finally:
        node.end()


async def _enqueue(port: int, jobs: int) -> None:
    """Jobs that nobody runs."""
    line = b'{"payload":{"kind":"AI","spec":{"model":"none","prompt":"hi"}},"max_fee":1}\n'
    headers = {"authorization": f"Bearer {OTHER_TOKEN}", "content-type": "application/x-ndjson"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_S) as client:
        answer = await client.post("/v1/jobs:bulk", content=line * jobs)
        assert b'"error"' not in answer.content, answer.text[:200]


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Each case after a quiet moment of the same node."""
    seconds, rounds, jobs = (0.5, 1, 500) if is_quick else (5.0, 3, 5_000)
    figures: dict[str, list[float]] = {}
    async with abused_node(folder / "abuse", jobs) as (http, over_grpc):
        for _ in range(rounds):
            for case in CASES:
                figures.setdefault(QUIET, []).append(await p99_ms(http, seconds))
                async with abuser(case, over_grpc if case in OVER_GRPC else http, 4 * seconds):
                    figures.setdefault(case, []).append(await p99_ms(http, seconds))
    found = _as_table({QUIET: figures[QUIET][:: len(CASES)], **{case: figures[case] for case in CASES}})
    print(show(found), end="\n\n", flush=True)
    return [found]


def _as_table(figures: Mapping[str, list[float]]) -> Table:
    found = table("abuse", "Honest p99 while each abuse runs", "ms", figures, list(figures), QUIET)
    worst = max((max(row.ratios), row.name) for row in found.rows if row.name != QUIET)
    says = f"an honest client's p99 stays below {TIMES_MAX} times its quiet p99"
    found.goals.append(Goal(says, f"{worst[0]:.1f} times at worst ({worst[1]})", worst[0] < TIMES_MAX))
    return found
