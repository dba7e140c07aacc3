"""The door for those who are on the machine: JSON-RPC, one message a line, over a socket only the node's user can open.

The folder's permissions are the key (SEC-001). `events.follow` turns a connection into a stream of events that
resumes from a cursor.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.values import EventNo
from holdfast.doors.desk import LOCAL, Desk, Visitor
from holdfast.doors.http.topics import HIDDEN
from holdfast.doors.jsonrpc import answer, failure
from holdfast.doors.shapes import plain, read_params
from holdfast.engine.tail import Recorded

LINE_BYTES_MAX: Final = 4 << 20
CONNECTIONS_MAX: Final = 256
IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that may wait for their batch at the same time; the next one is read after an answer."""
SOCKET_PATH_MAX: Final = 107


class Follow(msgspec.Struct, frozen=True):
    """From which event on; 0 is from the beginning."""

    after: EventNo = EventNo(0)


class LocalDoor:
    """A listening Unix socket."""

    def __init__(self, desk: Desk, path: Path) -> None:
        self._desk, self.path = desk, path
        self._server: asyncio.Server | None = None
        self._inode = 0
        self._visitors: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        if len(os.fsencode(self.path)) > SOCKET_PATH_MAX:
            raise Unavailable(
                "RPC-001", f"{self.path} is too long for a socket", "use a data folder with a shorter path"
            )
        self.path.unlink(missing_ok=True)  # left by a node that was killed; the journal's lock keeps a live one safe
        self._server = await asyncio.start_unix_server(self._welcome, self.path, limit=LINE_BYTES_MAX)
        self.path.chmod(0o600)
        self._inode = self.path.stat().st_ino

    async def is_answered(self) -> bool:
        """Whether somebody listens there already."""
        try:
            _, writer = await asyncio.open_unix_connection(self.path)
        except OSError:
            return False
        writer.close()
        return True

    async def close(self) -> None:
        """Let nobody in any more, finish what was asked, hang up."""
        if self._server is not None:
            self._server.close()
            for visitor in self._visitors:
                visitor.cancel()
            await asyncio.gather(*self._visitors, return_exceptions=True)
            if self.path.exists() and self.path.stat().st_ino == self._inode:  # else it is our successor's
                self.path.unlink()

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._visitors) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._visitors.add(task)
        try:
            await _Visit(self._desk, reader, writer).serve()
        except (ConnectionError, asyncio.CancelledError):
            pass  # they left, or we are closing
        finally:
            self._visitors.discard(task)
            writer.close()


class _Visit:
    """One connection: requests are read in order, answered as their batches become durable."""

    def __init__(self, desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._desk, self._reader, self._writer = desk, reader, writer
        self._free = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        try:
            while line := await self._next_line():
                if (wanted := _follow_request(line)) is not None:
                    await self._stream(*wanted)
                    return
                await self._free.acquire()
                task = asyncio.create_task(self._answer(line))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        finally:
            # Whoever hangs up does not want answers, but what was asked is finished all the same.
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _next_line(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""  # a half line has no meaning
        except asyncio.LimitOverrunError:
            await self._say(
                failure(None, Refused("RPC-001", f"a line over {LINE_BYTES_MAX} bytes", name="InvalidRequest"))
            )
            return b""

    async def _answer(self, line: bytes) -> None:
        try:
            if (said := await answer(self._desk, line, _on_behalf_of(line))) is not None:
                await self._say(said)
        except ConnectionError:
            pass
        finally:
            self._free.release()

    async def _stream(self, id_: object, params: object) -> None:
        asked = read_params(Follow, params)
        if isinstance(asked, Refused):
            await self._say(failure(id_, asked))
            return
        tail = self._desk.source.tail
        if (no := tail.why_not_follow(asked.after)) is not None:
            await self._say(failure(id_, no))
            return
        try:
            async for recorded in tail.follow(asked.after):
                told = {"jsonrpc": "2.0", "method": "event", "params": _shown(recorded)}
                await self._say(msgspec.json.encode(told))
        except Unavailable as fault:
            if fault.rule == "ENG-006":  # what it asked for was deleted; else it hangs up and the client asks again
                await self._say(failure(id_, fault))

    async def _say(self, raw: bytes) -> None:
        self._writer.write(raw + b"\n")
        await self._writer.drain()


def _shown(recorded: Recorded) -> dict[str, Any]:
    """RPC-002: result bytes do not pass through here either, nor do secrets; what is hidden is hidden everywhere."""
    told: dict[str, Any] = plain(recorded) | {"type": type(recorded.event).__name__}
    told["event"] = {name: value for name, value in told["event"].items() if name not in HIDDEN}
    return told


def _on_behalf_of(line: bytes) -> Visitor:
    """Whoever may open the socket may also speak for others: a follower does, when it hands a request on."""
    if b'"visitor"' not in line:
        return LOCAL
    try:
        return msgspec.json.decode(line, type=_HandedOn).visitor
    except msgspec.DecodeError:
        return LOCAL


class _HandedOn(msgspec.Struct):
    visitor: Visitor = LOCAL


def _follow_request(line: bytes) -> tuple[object, object] | None:
    if b'"events.follow"' not in line:
        return None
    try:
        request = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    if not isinstance(request, dict) or request.get("method") != "events.follow":
        return None
    return request.get("id"), request.get("params", {})
