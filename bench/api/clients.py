"""Clients that cost little, so that what is measured is the server: prepared bytes out, the length of an answer in."""

from __future__ import annotations

import asyncio
import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress

from bench.api.servers import TOKEN

Write = Callable[[], bytes]
"""The next request's JSON."""
EVENT_SPACING_S = 0.2
"""Events are made so far apart that none waits for the one before it."""
_AUTH = f"authorization: Bearer {TOKEN}\r\n".encode()


def status() -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"node.getStatus","params":{}}'


def show() -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"account.getAccount","params":{"owner":"alice"}}'


def mint() -> bytes:
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"account.mint","params":{"id":"%s","owner":"alice","amount":1}}'
        % os.urandom(32).hex().encode()
    )


async def posts(port: int, write: Write, callers: int, count: int) -> float:
    """Requests a second of closed loops over connections that are kept."""

    async def caller(mine: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(mine):
            body = write()
            writer.write(
                b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                + _AUTH
                + b"content-length: %d\r\n\r\n" % len(body)
                + body
            )
            check(await _answer(reader))
        writer.close()

    return await _rate(caller, callers, count)


async def messages(port: int, write: Write, callers: int, count: int) -> float:
    """The same over WebSockets."""

    async def caller(mine: int) -> None:
        reader, writer = await _upgraded(port)
        for _ in range(mine):
            writer.write(masked(write()))
            check(await frame(reader))
        writer.close()

    return await _rate(caller, callers, count)


async def _rate(caller: Callable[[int], object], callers: int, count: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(caller(count // callers) for _ in range(callers)))  # type: ignore[call-overload]
    return count // callers * callers / (time.perf_counter() - began)


def check(answer: bytes) -> None:
    """A figure counts only where all was answered."""
    assert b'"result"' in answer, answer[:300]


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().index(b"content-length: ") + 16
    return await reader.readexactly(int(head[at : head.index(b"\r", at)]))


# ------------------------------------------------------------------------------------------------ WebSocket


async def _upgraded(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = b64encode(os.urandom(16))
    writer.write(
        b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
        + _AUTH
        + b"sec-websocket-key: %s\r\n\r\n" % key
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def masked(body: bytes) -> bytes:
    """A text frame as a client sends it; a mask of zeros leaves the bytes as they are."""
    length = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2, "big")
    return b"\x81" + length + bytes(4) + body


async def frame(reader: asyncio.StreamReader) -> bytes:
    """The next text frame; pings are not answered, no turn lasts so long."""
    while True:
        kind, length = await reader.readexactly(2)
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2), "big")
        body = await reader.readexactly(length)
        if kind == 0x81:
            return body


# ------------------------------------------------------------------------------------------------ followers


class Follower(asyncio.Protocol):
    """A stream of events that only notes when bytes with an event came."""

    def __init__(self) -> None:
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seen: list[float] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(b"GET /events HTTP/1.1\r\nhost: x\r\n" + _AUTH + b"\r\n")

    def data_received(self, data: bytes) -> None:
        if b"retry:" in data and not self.began.done():
            self.began.set_result(None)
        if b"\ndata:" in data:
            self.seen.append(time.perf_counter())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def followers(port: int, count: int) -> list[Follower]:
    """Many who follow and are quiet."""
    loop = asyncio.get_running_loop()
    found: list[Follower] = []
    for chunk in split(count, 100):
        made = await asyncio.gather(*(loop.create_connection(Follower, "127.0.0.1", port) for _ in range(chunk)))
        found += [protocol for _, protocol in made]
        await asyncio.gather(*(each.began for each in found[-chunk:]))
    return found


async def event_latencies(port: int, all_: list[Follower], within_s: float = 30.0) -> list[float]:
    """One event is made; after how many seconds each follower had it, sorted."""
    await asyncio.sleep(EVENT_SPACING_S)
    for each in all_:
        each.seen.clear()
    began = time.perf_counter()
    await posts(port, mint, 1, 1)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not all(each.seen for each in all_):  # noqa: ASYNC110 - a thousand of them
                await asyncio.sleep(0.001)
    assert all(each.seen for each in all_), "not all have heard of it"
    return sorted(each.seen[0] - began for each in all_)


def split(count: int, size: int) -> Iterator[int]:
    for at in range(0, count, size):
        yield min(size, count - at)
