"""A proxy that understands gRPC and treats its messages badly: late, twice, in another order, cut short, never.

It knows the two services of evidence. The first words of a stream pass unharmed; everything after them may not. Bytes
that are doubled or swapped below HTTP/2 only break the connection, which `line.Line` does better.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import grpc

from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2 as pb

OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
BATCHED = 5
"""Messages with many records are fewer: they are cut short so much more often."""
FAULTS = frozenset({"reordered", "lost", "truncated", "doubled", "delayed"})
UNHARMED = 2
"""Messages at the beginning of either direction: challenge, hello, the first watermark."""
STREAMS = {
    "/holdfast.evidence.v1.EvidenceService/Stream",
    "/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream",
}


class FaultyProxy:
    """Stands before a node; `faults` is how often a message suffers each of them."""

    def __init__(self, listen: int, target: int, seed: int, faults: float = 0.01) -> None:
        self.port, self._target, self._random, self.faults = listen, target, Random(seed), faults
        self.done: dict[str, int] = {}
        """How often each fault happened."""
        self._server: Any = None
        self._channel: Any = None

    async def open(self) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._target}", options=OPTIONS)
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((_Handler(self),))
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(0)
        await self._channel.close()

    async def serve(self, method: str, requests: AsyncIterator[bytes], context: Any) -> None:
        """One stream there and back, until either side ends it."""
        call = self._channel.stream_stream(method)()
        there = asyncio.create_task(self._forward(_of(requests), call.write, self._is_node(method)))
        back = asyncio.create_task(self._forward(_read(call), context.write, False))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            call.cancel()
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the line behind the proxy broke")

    def _is_node(self, method: str) -> bool:
        return method.startswith("/holdfast")

    async def _forward(self, source: AsyncIterator[bytes], write: Any, is_batched: bool) -> None:
        count, held = 0, list[bytes]()
        async for message in source:
            count += 1
            if count <= UNHARMED:
                await write(message)
                continue
            if held or not self._happens("reordered"):
                for each in (*self._apply_faults(message, is_batched), *held):
                    await self._late()
                    await write(each)
                held.clear()
            else:
                held.append(message)  # the next one overtakes it

    def _apply_faults(self, message: bytes, is_batched: bool) -> list[bytes]:
        if self._happens("lost"):
            return []
        if is_batched and self._happens("truncated", BATCHED):
            message = _truncated(message)
        return [message, message] if self._happens("doubled") else [message]

    async def _late(self) -> None:
        if self._happens("delayed"):
            await asyncio.sleep(self._random.random() / 20)

    def _happens(self, what: str, often: int = 1) -> bool:
        assert what in FAULTS
        happens = self._random.random() < self.faults * often
        self.done[what] = self.done.get(what, 0) + happens
        return happens


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, proxy: FaultyProxy) -> None:
        self._proxy = proxy

    def service(self, details: Any) -> Any:
        method = details.method
        if method not in STREAMS:
            return None

        async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
            await self._proxy.serve(method, requests, context)

        return grpc.stream_stream_rpc_method_handler(handle)


def _truncated(message: bytes) -> bytes:
    """The last records of a message are cut off."""
    request = pb.StreamRequest.FromString(message)
    del request.records.lines[len(request.records.lines) // 2 + 1 :]
    return request.SerializeToString()


async def _of(requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _read(call: Any) -> AsyncIterator[bytes]:
    while (message := await call.read()) is not EOF:
        yield message
