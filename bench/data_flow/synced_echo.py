"""The least that a remote, durable answer can cost: a bare gRPC stream whose other end syncs every message to disk.

`python -m bench.data_flow.synced_echo FILE PORT` appends and syncs each message and sends it back, until its standard input ends.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from tests.loopback_ports import free_ports

METHOD = "/bench.Echo/Stream"
MESSAGE = b"x" * 300
"""As large as a job of the comparison."""


async def serve(file: Path, port: int) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def stream(messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for message in messages:
            os.write(handle, message)
            os.fdatasync(handle)
            yield message

    service, method = METHOD[1:].split("/")
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("up", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


@asynccontextmanager
async def running_echo(file: Path) -> AsyncIterator[int]:
    """The port of a server in its own process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pipe = asyncio.subprocess.PIPE
    port = free_ports(1)[0]
    command = (sys.executable, "-m", "bench.data_flow.synced_echo", str(file), str(port))
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline(), "the bare server did not start"
        yield port
    finally:
        process.stdin.close()
        await process.wait()


async def exchange_messages(port: int, callers: int, count: int) -> list[float]:
    """Seconds of every round trip, `callers` at a time, each with a stream of its own."""
    took: list[float] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.gather(*(_ask(channel, count // callers, took) for _ in range(callers)))
    return took


async def _ask(channel: Any, count: int, took: list[float]) -> None:
    call = channel.stream_stream(METHOD)()
    for _ in range(count):
        began = time.perf_counter()
        await call.write(MESSAGE)
        await call.read()
        took.append(time.perf_counter() - began)
    await call.done_writing()
    await call.read()  # the end of it: nothing is cut off when the server goes


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
