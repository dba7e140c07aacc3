"""Abuse (SEC-002): what somebody does to a node who wants others not to be served.

`python -m bench.abuse_cases CASE PORT SECONDS`: the abuser, in a process of its own, so that it does not slow honest
clients. `bench abuse` runs one case at a time, `make attack` all at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from bench.api.servers import OTHER_TOKEN
from bench.stream.sender_process import BenchSender
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc
from holdfast.wire.gen.holdfast.result.v1 import result_pb2, result_pb2_grpc

FOLLOWERS = 50
FOLLOWED_BYTES = 256 << 10
"""What a follower reads before it begins again: as much as a node sends before somebody has read it."""
RETRY_S = 0.05
"""After a refused connection: a node that starts on the same machine needs the processor."""
JSON = {"content-type": "application/json"}
LOW_PRIORITY = ("nice", "-n", "10")
"""Before an abuser's command: real ones are on other machines, so these have what the node leaves of the processor."""


def rpc_call(method: str, params: str = "{}") -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode()


WIDE = b"[" + b"[]," * 20_000 + b"1]"
DEEP = b'{"a":' * 10_000
OWN_LIST = rpc_call("cap.listJobs", '{"caller":"mallory","limit":1000}')
KEYS = rpc_call("cap.getJob", "{" + ",".join(f'"k{n}":1' for n in range(6_000)) + "}")
POSTS: dict[str, tuple[bytes, bool]] = {
    "long names": (rpc_call("x" * 60_000), False),
    "wide JSON": (WIDE, False),
    "deep JSON": (DEEP, False),
    "many keys": (KEYS, False),
    "wide JSON, with a key": (b"[" + b"[]," * 1_300_000 + b"1]", True),
    "100 MB bodies": (b" " * (100 << 20), True),
    "list scans": (OWN_LIST, True),
    "list scans without a key": (rpc_call("aicf.listJobs", '{"state":"QUEUED","limit":1000}'), False),
    "batches of lists": (b"[" + b",".join([rpc_call("cap.listJobs", '{"limit":1000}')] * 20) + b"]", False),
    "batches of lists, with a key": (b"[" + b",".join([OWN_LIST] * 100) + b"]", True),
    "proofs": (rpc_call("chain.getBlock", '{"height":1}'), False),
    "proofs, with a key": (rpc_call("chain.getBlock", '{"height":1}'), True),
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


async def sit_idle(port: int, until: float, *, said: bytes = b"") -> None:
    """Thousands of sockets that say nothing, or no more than this."""
    sockets = []
    while time.monotonic() < until:
        try:
            sockets.append((await asyncio.open_connection("127.0.0.1", port))[1])
            sockets[-1].write(said)
        except OSError:
            await asyncio.sleep(RETRY_S)
        if len(sockets) > 3_000:
            sockets.pop(0).close()
        await asyncio.sleep(0)


async def follow_from_the_first_event(port: int, until: float, *, has_key: bool = False) -> None:
    """A subscription to everything that ever happened; once some of it has come, it begins again."""
    headers = {"authorization": f"Bearer {OTHER_TOKEN}"} if has_key else {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
        while time.monotonic() < until:
            try:
                async with client.stream("GET", "/events?after=0") as answer:
                    if answer.status_code != httpx.codes.OK:
                        await asyncio.sleep(RETRY_S)
                    read = 0
                    async for chunk in answer.aiter_raw():
                        read += len(chunk)
                        if read > FOLLOWED_BYTES or time.monotonic() > until:
                            break
            except httpx.HTTPError:
                await asyncio.sleep(RETRY_S)


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


WEBSOCKET_FAULTS = (OSError, WebSocketException, TimeoutError)


async def _open_websocket(port: int, *, has_key: bool) -> ClientConnection:
    headers = {"authorization": f"Bearer {OTHER_TOKEN}"} if has_key else {}
    url = f"ws://127.0.0.1:{port}/ws"
    return await connect(url, additional_headers=headers, proxy=None, open_timeout=5, ping_interval=None)


async def sit_idle_on_websockets(port: int, until: float, *, has_key: bool = False) -> None:
    """As many WebSockets as there are places, and more."""
    opened = deque[ClientConnection](maxlen=2_000)
    while time.monotonic() < until:
        try:
            opened.append(await _open_websocket(port, has_key=has_key))
        except WEBSOCKET_FAULTS:
            await asyncio.sleep(RETRY_S)


async def flood_websocket(port: int, until: float, *, has_key: bool = False) -> None:
    """Requests as fast as they are taken; of the answers none is waited for."""
    while time.monotonic() < until:
        try:
            async with await _open_websocket(port, has_key=has_key) as wire:
                reading = asyncio.create_task(_read_all(wire))
                while time.monotonic() < until and not reading.done():
                    await wire.send(rpc_call("node.getStatus").decode())
                reading.cancel()
        except WEBSOCKET_FAULTS:
            await asyncio.sleep(RETRY_S)


async def _read_all(wire: ClientConnection) -> None:
    async for _ in wire:
        pass


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


async def call_over_grpc(port: int, until: float, *, has_key: bool = False) -> None:
    """Calls for a result that is not there, as fast as they are answered."""
    metadata = (("authorization", f"Bearer {OTHER_TOKEN}"),) if has_key else ()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = result_pb2_grpc.ResultServiceStub(channel)  # type: ignore[no-untyped-call]
        while time.monotonic() < until:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.GetResult(result_pb2.GetResultRequest(task_id=bytes(32)), metadata=metadata, timeout=5)


async def flood_evidence(port: int, until: float) -> None:
    """Strangers without a stake register and send as much evidence as is taken."""
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(grpc.aio.AioRpcError):
            sender = BenchSender(port, "holdfast", Path(folder))
            await sender.open(4, f"flood{time.time_ns()}")  # fails while the node is down; a stream does not
            while time.monotonic() < until:
                await sender.rate(1_000)
        await asyncio.sleep(RETRY_S)


Abuser = Callable[[int, float], Awaitable[None]]
OTHERS: dict[str, Abuser] = {
    "idle sockets": sit_idle,
    "sockets that say one byte": partial(sit_idle, said=b"P"),
    "slow writers": write_slowly,
    "idle WebSockets": sit_idle_on_websockets,
    "idle WebSockets, with a key": partial(sit_idle_on_websockets, has_key=True),
    "WebSocket flood": flood_websocket,
    "WebSocket flood, with a key": partial(flood_websocket, has_key=True),
    "followers from the first event": follow_from_the_first_event,
    "followers from the first event, with a key": partial(follow_from_the_first_event, has_key=True),
}
OVER_GRPC: dict[str, Abuser] = {
    "gRPC streams": open_streams,
    "gRPC calls": call_over_grpc,
    "gRPC calls, with a key": partial(call_over_grpc, has_key=True),
    "evidence flood": flood_evidence,
}
CASES = (*POSTS, *OTHERS, *OVER_GRPC)
AT_ONCE = {"slow writers": 32, "WebSocket flood": 8, "WebSocket flood, with a key": 8} | dict.fromkeys(POSTS, 8)
AT_ONCE |= dict.fromkeys((case for case in OTHERS if case.startswith("followers")), FOLLOWERS)
"""As many at once as an abuser likes; of the others one is enough."""


async def abuse(case: str, port: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    if case in POSTS:
        body, has_key = POSTS[case]
        run_case: Abuser = partial(post_again_and_again, body=body, has_key=has_key)
    else:
        run_case = (OTHERS | OVER_GRPC)[case]
    await asyncio.gather(*(run_case(port, until) for _ in range(AT_ONCE.get(case, 1))))


if __name__ == "__main__":
    asyncio.run(abuse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
