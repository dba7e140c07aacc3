"""JSON-RPC for programs on the machine, one message a line, over a socket that only the node's user can open.

The folder's permissions are the key (SEC-001). `events.follow` turns a connection into a stream of events that
resumes from a cursor; it is the one method that only this socket has.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.api.derived_events import Cursor, parse_cursor, primed_fold
from holdfast.api.node_access import LOCAL, NodeAccess, Principal
from holdfast.api.public_events import HIDDEN_FIELDS, public_name
from holdfast.api.rpc import jsonrpc
from holdfast.api.rpc.params import read_params, to_json
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.queries import ReadSource

FOLLOW_METHOD: Final = "events.follow"
LINE_BYTES_MAX: Final = 4 << 20
CONNECTIONS_MAX: Final = 256
IN_FLIGHT_MAX: Final = 64
"""Messages of one connection that may wait for their batch at the same time; the next one is read after an answer."""
SOCKET_PATH_MAX: Final = 107
EVENTS_PER_WRITE: Final = 64
"""Events that a follower is sent at a time; others have a turn of the loop after each."""
_Shown = tuple[StoredEvent, int]
"""An event, and its index where it is derived from the next one."""
_encode: Final = msgspec.json.Encoder().encode


class FollowParams(msgspec.Struct, frozen=True):
    """After which cursor to begin; 0 is from the beginning."""

    after: int | str = 0
    derived: bool = False
    """EVT-002: also what blocks do to results, with the cursor `number.index`."""


class UnixSocketServer:
    """A listening Unix socket."""

    def __init__(self, access: NodeAccess, path: Path) -> None:
        self._access, self.path = access, path
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        if len(os.fsencode(self.path)) > SOCKET_PATH_MAX:
            raise Unavailable(
                "RPC-001", f"{self.path} is too long for a socket", "use a data folder with a shorter path"
            )
        self.path.unlink(missing_ok=True)  # left by a node that was killed; the journal's lock keeps a live one safe
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=LINE_BYTES_MAX)
        self.path.chmod(0o600)
        self._inode = self.path.stat().st_ino

    async def is_in_use(self) -> bool:
        """Whether another process listens there already."""
        try:
            _, writer = await asyncio.open_unix_connection(self.path)
        except OSError:
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """Accept no more connections, finish the requests that run, close the connections."""
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            if self.path.exists() and self.path.stat().st_ino == self._inode:  # else it is our successor's
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._connections.add(task)
        try:
            await _Connection(self._access, reader, writer).serve()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or we are closing
        finally:
            self._connections.discard(task)
            writer.close()


class _Connection:
    """One connection: messages are read in order and answered as their batches become durable."""

    def __init__(self, access: NodeAccess, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._access, self._reader, self._writer = access, reader, writer
        self._free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        try:
            while line := await self._next_line():
                message = jsonrpc.decode(line)
                if isinstance(message, Refused):
                    await self._send(jsonrpc.error_message(None, message))
                    continue
                if (follow := _follow_request(message)) is not None:
                    await self._stream(follow)
                    return
                if isinstance(principal := _principal_of(message), Refused):
                    await self._send(jsonrpc.error_message(None, principal))
                    continue
                await self._free.acquire()
                task = asyncio.create_task(self._answer(message, principal))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        finally:
            # A client that hangs up gets no answers, but its requests are finished all the same.
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _next_line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""  # an incomplete line is not a message
        except asyncio.LimitOverrunError:
            refusal = Refused("SEC-001", f"a line of more than {LINE_BYTES_MAX} bytes", name="TooLarge")
            await self._send(jsonrpc.error_message(None, refusal))
            return b""

    async def _answer(self, message: jsonrpc.RpcMessage, principal: Principal) -> None:
        try:
            outcomes = await jsonrpc.handle(self._access, message, principal)
            if (answer := jsonrpc.encode(message, outcomes)) is not None:
                await self._send(answer)
        except ConnectionError:
            pass
        finally:
            self._free.release()

    async def _stream(self, request: jsonrpc.RpcRequest) -> None:
        params = read_params(FollowParams, request.params)
        if isinstance(params, Refused):
            await self._send(jsonrpc.error_message(request.id, params))
            return
        cursor = parse_cursor(str(params.after))
        refusal = self._access.source.event_stream.why_not_follow(cursor.after) if cursor is not None else _NO_CURSOR
        if cursor is None or refusal is not None:
            await self._send(jsonrpc.error_message(request.id, refusal or _NO_CURSOR))
            return
        try:
            async for events in _events_after(self._access.source, cursor, derived=params.derived):
                for start in range(0, len(events), EVENTS_PER_WRITE):
                    await self._send(b"\n".join(map(_event_line, events[start : start + EVENTS_PER_WRITE])))
                    await asyncio.sleep(0)
        except Unavailable as fault:
            if fault.rule == "ENG-006":  # the events were deleted; on other faults it hangs up and the client retries
                await self._send(jsonrpc.error_message(request.id, fault))

    async def _send(self, raw: bytes) -> None:
        self._writer.write(raw + b"\n")
        await self._writer.drain()


_NO_CURSOR: Final = Refused("RPC-001", "params: after: expected `number` or `number.index`", name="InvalidParams")


async def _events_after(source: ReadSource, cursor: Cursor, *, derived: bool) -> AsyncIterator[list[_Shown]]:
    """The events of each batch. EVT-002: what a block's event means for results comes just before it."""
    fold = await primed_fold(source, cursor.after) if derived else None
    async for batch in source.event_stream.follow_batches(cursor.after):
        events: list[_Shown] = []
        for stored in batch:
            told = fold.add(stored.event) if fold is not None else []
            known = cursor.index if stored.number == cursor.after + 1 else 0
            for index, event in enumerate(told[known:], known + 1):
                events.append((StoredEvent(stored.number, stored.time_ms, event), index))
            events.append((stored, 0))
        yield events


def _event_line(shown: _Shown) -> bytes:
    """RPC-002: neither result bytes nor secrets pass through here; what is hidden is hidden everywhere."""
    stored, index = shown
    kind = public_name(type(stored.event), stored.event)
    fields = {name: value for name, value in to_json(stored.event).items() if name not in HIDDEN_FIELDS}
    told = {"number": stored.number, "time_ms": stored.time_ms, "event": fields, "type": kind}
    return _encode({"jsonrpc": "2.0", "method": "event", "params": told | {"index": index} if index else told})


def _principal_of(message: jsonrpc.RpcMessage) -> Principal | Refused:
    """Whoever may open the socket may also act for others: a follower does, when it forwards a request."""
    request = message.requests[0]
    if message.is_batch or not isinstance(request, jsonrpc.RpcRequest) or request.principal is None:
        return LOCAL
    try:
        return msgspec.convert(request.principal, Principal)
    except msgspec.ValidationError as fault:
        return Refused("RPC-001", f"principal: {fault}", name="InvalidRequest")


def _follow_request(message: jsonrpc.RpcMessage) -> jsonrpc.RpcRequest | None:
    request = message.requests[0]
    if message.is_batch or not isinstance(request, jsonrpc.RpcRequest):
        return None
    return request if request.method == FOLLOW_METHOD else None
