"""Thousands of idle providers on one node: what a work stream that waits costs in memory and in processor time.

Every provider has a connection of its own, as real ones have. The baseline is a bare gRPC server whose streams wait.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from tests.loopback_ports import free_ports
from tests.stories.node_process import NodeProcess

from bench.data_flow import synced_echo
from bench.measure import Table, at_most, interleave, show, table
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.provider.model import provider_id
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc

AT_ONCE = 32
IDLE_S = 3.0
YEAR_MS = 365 * 24 * 3_600_000
OWN = (("grpc.use_local_subchannel_pool", 1),)
BARE, OURS = "bare gRPC streams that wait", "providers that wait for work"
KIB_MAX, PERCENT_MAX = 200.0, 5.0
TICKS = os.sysconf("SC_CLK_TCK")
Opener = Callable[[Any, int], Awaitable[Any]]


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Memory a stream, and what the process does while nothing happens."""
    rounds, number = (1, 100) if is_quick else (5, 2_000)
    keys = [SigningKey.generate() for _ in range(number)]
    data = folder / "idle" / "data"
    async with running_node(data) as (_, port):
        await _registered(port, keys)

    async def ours(_: int) -> Mapping[str, float]:
        async with running_node(data) as (pid, port):
            return await _measured(OURS, pid, port, number, lambda channel, at: _at_work(channel, keys[at]))

    async def bare(_: int) -> Mapping[str, float]:
        async with running_bare(folder / "idle" / "bare") as (pid, port):
            return await _measured(BARE, pid, port, number, _waiting)

    found = await interleave([bare, ours], rounds)
    tables = []
    for what, title, unit, goal in (
        ("memory", f"Memory of a stream, {number} of them open", "KiB", KIB_MAX),
        ("busy", f"Processor time while {number} streams are idle", "% of a core", PERCENT_MAX),
    ):
        figures = {name: found[f"{name}, {what}"] for name in (BARE, OURS)}
        made = table(f"idle-{what}", title, unit, figures, (BARE, OURS), BARE if what == "memory" else None)
        made.goals.append(at_most(OURS, figures[OURS], goal, f" {unit}"))
        print(show(made), end="\n\n", flush=True)
        tables.append(made)
    return tables


async def _measured(name: str, pid: int, port: int, number: int, opened: Opener) -> Mapping[str, float]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", OWN))
        calls = [await opened(first, 0)]  # what the first one needs is needed once
        before = _memory_kib(pid)
        free = asyncio.Semaphore(AT_ONCE)

        async def one(at: int) -> None:
            async with free:
                channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", OWN)
                stack.push_async_callback(channel.close, None)
                calls.append(await opened(channel, at))

        await asyncio.gather(*(one(at) for at in range(1, number)))
        grown = (_memory_kib(pid) - before) / (number - 1)
        began, used = time.monotonic(), _used_s(pid)
        await asyncio.sleep(IDLE_S)
        busy = 100 * (_used_s(pid) - used) / (time.monotonic() - began)
        for call in calls:
            call.cancel()
    return {f"{name}, memory": grown, f"{name}, busy": busy}


def _memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def _used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


# ------------------------------------------------------------------------------------------------ both sides


@asynccontextmanager
async def running_node(data: Path) -> AsyncIterator[tuple[int, int]]:
    """A node in its own process, and its port."""
    data.parent.mkdir(parents=True, exist_ok=True)
    port = free_ports(1)[0]
    settings = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(port), "HOLDFAST_LOG__LEVEL": "warning"}
    node = NodeProcess(data, environ=settings)
    try:
        await node.up()
        yield node.pid, port
    finally:
        node.end()


@asynccontextmanager
async def running_bare(file: Path) -> AsyncIterator[tuple[int, int]]:
    file.parent.mkdir(parents=True, exist_ok=True)
    pipe, port = asyncio.subprocess.PIPE, free_ports(1)[0]
    command = (sys.executable, "-m", "bench.data_flow.synced_echo", str(file), str(port))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "the bare server did not start"
        yield process.pid, port
    finally:
        process.stdin.close()
        await process.wait()


async def _waiting(channel: Any, _: int) -> Any:
    """A bare stream after one message there and back."""
    call = channel.stream_stream(synced_echo.METHOD)()
    await call.write(synced_echo.MESSAGE)
    await call.read()
    return call


async def _registered(port: int, keys: list[SigningKey]) -> None:
    free = asyncio.Semaphore(AT_ONCE)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = provider_pb2_grpc.ProviderServiceStub(channel)  # type: ignore[no-untyped-call]

        async def one(at: int, key: SigningKey) -> None:
            async with free:
                challenge = await stub.GetChallenge(pb.GetChallengeRequest())
                until_ms = challenge.time_ms + YEAR_MS
                told = (f"p{at}", f"p{at}", {"AI": {"models": ["echo"]}}, "eu", 1, 4, until_ms)
                names = ("name", "account", "capabilities", "region", "price", "slots", "attested_until_ms")
                fields = dict(zip(names, told, strict=True))
                body = signed_messages.pack_message(
                    signed_messages.Registration(nonce=challenge.nonce, public=key.public, **fields)
                )
                await stub.Register(
                    pb.RegisterRequest(body=body, signature=key.sign(signed_messages.to_sign_registration(body)))
                )

        await asyncio.gather(*(one(at, key) for at, key in enumerate(keys)))


async def _at_work(channel: Any, key: SigningKey) -> Any:
    """A work stream that was welcomed and has said that it lives."""
    stub: Any = provider_pb2_grpc.ProviderServiceStub(channel)  # type: ignore[no-untyped-call]
    call = stub.Work()
    nonce = (await call.read()).challenge.nonce
    signature = key.sign(signed_messages.to_sign_open(nonce, provider_id(key.public)))
    await call.write(pb.WorkRequest(open=pb.Open(public=key.public, signature=signature)))
    assert (await call.read()).WhichOneof("message") == "welcome"
    body = signed_messages.pack_message(
        signed_messages.ActBatch(nonce=nonce, count=1, acts=[signed_messages.AgentAct("beat", slots=4)])
    )
    await call.write(
        pb.WorkRequest(acts=pb.SignedActs(body=body, signature=key.sign(signed_messages.to_sign_acts(body))))
    )
    assert (await call.read()).updates.acts_done
    return call
