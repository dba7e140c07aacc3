"""Abuse (SEC-002): the p99 of an honest client with a key while somebody abuses the node, against its quiet p99.

`python -m bench.abuse CASE PORT SECONDS`: the abuser, in a process of its own, so that it does not slow the client. The
cases over gRPC have no row in the table: `make attack` runs them with all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx

from bench.api.servers import OTHER_TOKEN, TOKEN, running_server
from bench.measure import Goal, Table, show, table
from bench.stream.sender_process import BenchSender
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

QUIET = "quiet"
TIMES_MAX = 5
"""The factor below which an honest client's p99 stays, against its quiet p99."""
CALLERS = 8
RETRY_S = 0.05
"""After a refused connection: a node that starts on the same machine needs the processor."""
JSON = {"content-type": "application/json"}


def _call(method: str, params: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode()


WIDE = b"[" + b"[]," * 20_000 + b"1]"
DEEP = b'{"a":' * 10_000
KEYS = _call("cap.getJob", "{" + ",".join(f'"k{n}":1' for n in range(6_000)) + "}")
POSTS: dict[str, tuple[bytes, bool]] = {
    "long names": (_call("x" * 60_000), False),
    "wide JSON": (WIDE, False),
    "deep JSON": (DEEP, False),
    "many keys": (KEYS, False),
    "wide JSON, with a key": (b"[" + b"[]," * 1_300_000 + b"1]", True),
    "100 MB bodies": (b" " * (100 << 20), True),
    "list scans": (_call("cap.listJobs", '{"status":"FAILED","limit":1000}'), True),
    "list scans without a key": (_call("aicf.listJobs", '{"state":"EXPIRED","limit":1000}'), False),
}
"""What is posted again and again, and whether with a key."""


async def post_again_and_again(port: int, until: float, body: bytes, *, has_key: bool) -> None:
    headers = JSON | ({"authorization": f"Bearer {OTHER_TOKEN}"} if has_key else {})
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
        while time.monotonic() < until:
            try:
                await client.post("/rpc", content=body)
            except httpx.HTTPError:
                await asyncio.sleep(RETRY_S)


async def sit_idle(port: int, until: float) -> None:
    """Thousands of sockets that say nothing."""
    sockets = []
    while time.monotonic() < until:
        try:
            sockets.append((await asyncio.open_connection("127.0.0.1", port))[1])
        except OSError:
            await asyncio.sleep(RETRY_S)
        if len(sockets) > 3_000:
            sockets.pop(0).close()
        await asyncio.sleep(0)


async def write_slowly(port: int, until: float) -> None:
    """Heads and bodies that come byte by byte."""
    while time.monotonic() < until:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in b"POST /rpc HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 999999\r\n\r\n":
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.close()
        except OSError:
            await asyncio.sleep(RETRY_S)


async def open_streams(port: int, until: float) -> None:
    """Work streams that never say who they are, and a challenge with each."""
    calls = deque[Any](maxlen=1_000)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = provider_pb2_grpc.ProviderServiceStub(channel)  # type: ignore[no-untyped-call]
        while time.monotonic() < until:
            if len(calls) == calls.maxlen:
                calls.popleft().cancel()
            calls.append(stub.Work())
            try:
                await stub.GetChallenge(pb.GetChallengeRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(RETRY_S)


async def flood_evidence(port: int, until: float) -> None:
    """Strangers without a stake register and send as much evidence as is taken."""
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(grpc.aio.AioRpcError):
            sender = BenchSender(port, "holdfast", Path(folder))
            await sender.open(4, f"flood{time.time_ns()}")  # fails while the node is down; a stream does not
            while time.monotonic() < until:
                await sender.rate(1_000)
        await asyncio.sleep(RETRY_S)


async def abuse(case: str, port: int, seconds: float) -> None:
    """One case, by as many at once as an abuser likes."""
    until = time.monotonic() + seconds
    running: list[Awaitable[None]]
    if case in POSTS:
        body, has_key = POSTS[case]
        running = [post_again_and_again(port, until, body, has_key=has_key) for _ in range(8)]
    else:
        running = [(OTHERS | OVER_GRPC)[case](port, until) for _ in range(32 if case == "slow writers" else 1)]
    await asyncio.gather(*running)


OTHERS: dict[str, Callable[[int, float], Awaitable[None]]] = {"idle sockets": sit_idle, "slow writers": write_slowly}
CASES = (*POSTS, *OTHERS)
OVER_GRPC: dict[str, Callable[[int, float], Awaitable[None]]] = {
    "gRPC streams": open_streams,
    "evidence flood": flood_evidence,
}


async def p99_ms(port: int, seconds: float) -> float:
    """Of one honest client with a key, a request at a time on a few connections that are kept."""
    took: list[float] = []

    async def ask() -> None:
        headers = JSON | {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                began = time.perf_counter()
                answer = await client.post("/rpc", content=_call("node.getStatus"))
                took.append(time.perf_counter() - began)
                assert "result" in answer.json(), answer.text[:200]
                await asyncio.sleep(0.01)

    await asyncio.gather(*(ask() for _ in range(CALLERS)))
    return 1_000 * sorted(took)[int(len(took) * 0.99)]


@contextlib.asynccontextmanager
async def abuser(case: str, port: int, seconds: float) -> AsyncIterator[None]:
    """The abuser's process, ended by its pid."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.abuse", case, str(port), str(seconds))
    try:
        await asyncio.sleep(min(1.0, seconds / 2))
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Each case after a quiet moment of the same node."""
    seconds, rounds = (0.5, 1) if is_quick else (5.0, 3)
    figures: dict[str, list[float]] = {}
    async with running_server("guarded", folder / "abuse") as server:
        for _ in range(rounds):
            for case in CASES:
                figures.setdefault(QUIET, []).append(await p99_ms(server.port, seconds))
                async with abuser(case, server.port, 4 * seconds):
                    figures.setdefault(case, []).append(await p99_ms(server.port, seconds))
    found = _as_table({QUIET: figures[QUIET][:: len(CASES)], **{case: figures[case] for case in CASES}})
    print(show(found), end="\n\n", flush=True)
    return [found]


def _as_table(figures: Mapping[str, list[float]]) -> Table:
    found = table("abuse", "Honest p99 while each abuse runs", "ms", figures, list(figures), QUIET)
    worst = max((max(row.ratios), row.name) for row in found.rows if row.name != QUIET)
    says = f"an honest client's p99 stays below {TIMES_MAX} times its quiet p99"
    found.goals.append(Goal(says, f"{worst[0]:.1f} times at worst ({worst[1]})", worst[0] < TIMES_MAX))
    return found


if __name__ == "__main__":
    asyncio.run(abuse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
