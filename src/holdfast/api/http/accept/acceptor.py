"""Connections before they are HTTP (SEC-002): bare sockets with a place, until a whole head or TLS hello has come.

A transport, a parser and a task cost as much as a short request. A crowd of sockets that say nothing, or one byte,
would take that time from others. Here such a socket costs an accept and a place. Its bytes stay in the kernel, which
reports a socket again only when more of them have come. What accepting takes of the loop's time has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from holdfast.api.front.opening import Opening, check_opening
from holdfast.api.http.accept.first_head import check_head
from holdfast.api.http.connection import NOT_HTTP, ConnectionGuard, GuardedHttp, enter_place, late_response
from holdfast.api.http.responses import Response, refusal_response
from holdfast.api.limits.places import ConnectionPlace
from holdfast.core.base.errors import Refused

ACCEPTS_PER_TURN: Final = 16
"""Connections accepted in a turn of the loop, at most …"""
OTHERS_TIMES: Final = 7
"""… and while more wait, this many times as long as it took belongs to others: accepting has an eighth of the loop."""
NO_DESCRIPTORS_S: Final = 1.0
"""How long nothing is accepted after the process had no descriptor left."""
_log = structlog.get_logger()


class HeldSocket:
    """A connection that has not said enough to be answered."""

    __slots__ = ("place", "seen", "sock", "until_s")

    def __init__(self, sock: socket.socket, place: ConnectionPlace, until_s: float) -> None:
        self.sock, self.place, self.until_s = sock, place, until_s
        self.seen = 0
        """Bytes that wait in the kernel, as of the last look."""

    def shut(self) -> None:
        """End it while its transport is made, which sees the end of it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class AcceptorOptions(msgspec.Struct, frozen=True):
    """What an acceptor serves: the limits, what speaks HTTP on a socket, TLS, and the headers of every response."""

    guard: ConnectionGuard
    make_protocol: Callable[[ConnectionPlace, float], GuardedHttp]
    """With its place, and the seconds that are left for its first head."""
    tls: ssl.SSLContext | None
    response_bytes: Callable[[Response], bytes]


class Acceptor:
    """The connections of a listening socket, from accepting to the first head."""

    def __init__(
        self, listener: socket.socket, options: AcceptorOptions, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._listener, self._options, self._clock = listener, options, clock
        self._guard, self._tls = options.guard, options.tls
        self._head_s = self._guard.settings.head_ms / 1000
        self._head_max = self._guard.settings.head_bytes_max
        self._loop = asyncio.get_running_loop()
        self.held: dict[HeldSocket, None] = {}
        """In the order of their deadlines."""
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_open = True
        self._accept_when_ready()

    # ------------------------------------------------------------------------------------ accepting

    def _accept_when_ready(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener.fileno(), self._accept_some)

    def _accept_some(self) -> None:
        began = self._clock()
        try:
            for _ in range(ACCEPTS_PER_TURN):
                self._hold(*self._listener.accept())
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # no more of them wait
        except OSError as fault:
            _log.warning("accept_failed", reason=str(fault), hint="raise the limit of open files")
            self._pause_for(NO_DESCRIPTORS_S)
            return
        self._pause_for(OTHERS_TIMES * (self._clock() - began))

    def _pause_for(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._pause = self._loop.call_later(seconds, self._accept_when_ready)

    def _hold(self, sock: socket.socket, name: object) -> None:
        """Give it a place, and wait for what it says."""
        sock.setblocking(False)
        held: HeldSocket
        address = str(name[0]) if isinstance(name, tuple) else ""
        place = enter_place(self._guard, address, lambda: self._displace(held))
        if isinstance(place, Refused):
            self._refuse(sock, refusal_response(place, status=503))
            return
        held = HeldSocket(sock, place, self._loop.time() + self._head_s)
        self.held[held] = None
        self._loop.add_reader(sock.fileno(), self._look, held)  # by number: with a socket it takes twice as long
        if self._deadline is None:
            self._deadline = self._loop.call_at(held.until_s, self._end_late)

    # ------------------------------------------------------------------------------------ waiting

    def _look(self, held: HeldSocket) -> None:
        """Something has come, or the client is gone. The bytes stay where they are, for the transport."""
        try:
            first = held.sock.recv(self._head_max + 1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if len(first) <= held.seen:  # no more can come
            self._drop(held)
            return
        opening = check_head(first) if self._tls is None else check_opening(first, is_tls=True)
        if opening is Opening.FOREIGN:
            self._release(held)
            held.place.leave()
            if self._tls is None:
                self._refuse(held.sock, NOT_HTTP)
            else:
                held.sock.close()
        elif opening is Opening.COMPLETE or len(first) > self._head_max or not _wake_after(held.sock, len(first)):
            self._hand_over(held)
        else:
            held.seen = len(first)

    def _end_late(self) -> None:
        """Those that have not said enough within their time."""
        self._deadline = None
        now_s = self._loop.time()
        for held in list(self.held):
            if held.until_s > now_s:
                self._deadline = self._loop.call_at(held.until_s, self._end_late)
                return
            self._release(held)
            held.place.leave()
            self._guard.metrics.disconnected["late"] += 1
            if self._tls is None:
                self._refuse(held.sock, late_response("head", self._guard.settings.head_ms))
            else:
                held.sock.close()

    def _displace(self, held: HeldSocket) -> None:
        """A newer connection needs the place."""
        self._guard.metrics.disconnected["displaced"] += 1
        self._drop(held)

    def _drop(self, held: HeldSocket) -> None:
        self._release(held)
        held.place.leave()
        held.sock.close()

    def _release(self, held: HeldSocket) -> None:
        del self.held[held]
        self._loop.remove_reader(held.sock.fileno())

    def _refuse(self, sock: socket.socket, response: Response) -> None:
        self._guard.metrics.refusals["connection"] += 1
        with contextlib.suppress(OSError):  # what is not read would make the end a reset, which takes the answer away
            sock.recv(self._head_max + 1)
        with contextlib.suppress(OSError):
            sock.send(self._options.response_bytes(response))
        sock.close()

    # ------------------------------------------------------------------------------------ handing over

    def _hand_over(self, held: HeldSocket) -> None:
        self._release(held)
        if held.seen:
            held.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        held.place.close = held.shut
        task = self._loop.create_task(self._connect(held))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, held: HeldSocket) -> None:
        left_s = max(held.until_s - self._loop.time(), 0.001)
        head_s = left_s if self._tls is None else self._head_s
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._options.make_protocol(held.place, head_s),
                held.sock,
                ssl=self._tls,
                ssl_handshake_timeout=left_s if self._tls else None,
            )
        except OSError:  # a handshake that failed, or took too long
            held.place.leave()
            held.sock.close()
        except BaseException:
            held.place.leave()
            held.sock.close()
            raise

    # ------------------------------------------------------------------------------------ ending

    def stop_listening(self) -> None:
        """Accept no more; those that were accepted may still speak."""
        if not self._is_open:
            return
        self._is_open = False
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def close(self) -> None:
        """The same, and end those that have said nothing."""
        self.stop_listening()
        if self._deadline is not None:
            self._deadline.cancel()
        for held in list(self.held):
            self._drop(held)
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._connecting, return_exceptions=True)


def _wake_after(sock: socket.socket, seen: int) -> bool:
    """Whether the kernel reports this socket again only when it has more bytes than were seen, or its end. It does so
    for TCP alone."""
    if sock.family == socket.AF_UNIX:
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
    except OSError:
        return False
    return True
