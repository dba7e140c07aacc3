"""`/ws`: a WebSocket that speaks JSON-RPC and brings the events of its subscriptions (RPC-001, EVT-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import msgspec

from holdfast.core.key import Role
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, EventNo
from holdfast.doors.desk import EVERYBODY, NOBODY, Desk, Method, Visitor
from holdfast.doors.http.broadcast import Viewer
from holdfast.doors.http.connection import GuardedWebSocket
from holdfast.doors.http.events import Follows, address_of
from holdfast.doors.http.guests import token_of
from holdfast.doors.http.replies import Header, Receive, Reply, Scope, Send, head_of

PROTOCOL: Final = "holdfast.v1"
TOKEN_PREFIX: Final = "holdfast.token."  # noqa: S105 - what comes before the token
"""Browsers cannot set headers: they offer `holdfast.v1` and `holdfast.token.<token>` as subprotocols."""
STOPPING, SLOW = 1001, 4008
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ its own methods


class ShowToken(msgspec.Struct, frozen=True):
    """Say who you are, where no header could."""

    token: str


class Shown(msgspec.Struct, frozen=True):
    """Who you are to this node."""

    name: str
    role: Role | None
    account: AccountId | None


class Subscribe(msgspec.Struct, frozen=True):
    """Follow events: `event` notifications, each with its number, until you unsubscribe."""

    after: EventNo | None = None
    """The number of the last event you have; 0 is from the beginning, nothing is from now on."""
    types: list[str] | None = None
    """Only events of these types."""


class Subscribed(msgspec.Struct, frozen=True):
    """The number that notifications of this subscription carry, and the cursor it began with."""

    subscription: int
    after: EventNo


class Unsubscribe(msgspec.Struct, frozen=True):
    """Which subscription to end."""

    subscription: int


class Ended(msgspec.Struct, frozen=True):
    """The cursor that it ended with."""

    after: EventNo


async def _needs_socket(_: Desk, __: Visitor, ___: Any) -> Refused:
    return Refused("RPC-001", "this needs a connection that lasts", "open a WebSocket at /ws, or GET /events")


def session_methods(*, is_public: bool) -> dict[str, Method]:
    """What only a WebSocket can be asked, described for all."""
    roles = EVERYBODY if is_public else frozenset(Role)
    return {
        "auth.token": Method("Say who you are.", ShowToken, Shown, _needs_socket),
        "events.subscribe": Method("Follow events from a cursor.", Subscribe, Subscribed, _needs_socket, roles),
        "events.unsubscribe": Method("End a subscription.", Unsubscribe, Ended, _needs_socket, roles),
    }


# ------------------------------------------------------------------------------------------------ the session


class Session:
    """One WebSocket from its handshake to its end."""

    def __init__(self, follows: Follows, scope: Scope, receive: Receive, send: Send) -> None:
        self._follows, self._asking = follows, follows.asking
        self._scope, self._receive, self._send = scope, receive, send
        self._wire: GuardedWebSocket = scope["state"]["wire"]
        self._address = address_of(scope)
        self._token: str | None = None
        self._free = asyncio.Semaphore(self._asking.settings.in_flight_max)
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._viewers: dict[int, Viewer] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[Any] | None = None
        self._bye: tuple[int, str] | None = None

    async def serve(self) -> None:
        await self._receive()  # the handshake's request
        offered: list[str] = self._scope["subprotocols"]
        if (refused := await self._why_not_open(offered)) is not None:
            await self._reject(refused)
            return
        await self._send({"type": "websocket.accept", "subprotocol": PROTOCOL if PROTOCOL in offered else None})
        self._task = asyncio.current_task()
        try:
            await self._listen()
        except asyncio.CancelledError:
            if self._bye is None or self._task is None:
                raise
            self._task.uncancel()
        finally:
            await self._wind_up()

    def finish(self, code: int, why: str) -> None:
        """Take no more messages, answer those that were taken, and close."""
        if self._bye is None and self._task is not None:
            self._bye = (code, why)
            self._task.cancel()

    async def _wind_up(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        # Whoever hangs up does not want answers, but what was asked is finished all the same.
        await asyncio.gather(*self._pumps, *self._running, return_exceptions=True)
        if self._bye is not None:
            self._wire.hang_up(*self._bye)

    # ------------------------------------------------------------------------------------ coming in

    async def _why_not_open(self, offered: list[str]) -> Reply | None:
        headers: list[Header] = self._scope["headers"]
        if strange := _strange_origin(headers, self._asking.settings.origins.split()):
            why = Refused("SEC-001", f"pages of {strange!r:.80} may not connect", "see http.origins", "Forbidden")
            return self._asking.refuse(why)
        token = token_of(headers)
        if token is None:
            token = next((each.removeprefix(TOKEN_PREFIX) for each in offered if each.startswith(TOKEN_PREFIX)), None)
        visitor = await self._asking.admit(token, self._address)
        if isinstance(visitor, Reply):
            return visitor
        assert not isinstance(token, Refused)
        self._token = token
        return None

    async def _reject(self, reply: Reply) -> None:
        start = {"type": "websocket.http.response.start", "status": reply.status, "headers": head_of(reply)}
        await self._send(start)
        await self._send({"type": "websocket.http.response.body", "body": reply.body})

    # ------------------------------------------------------------------------------------ asking and answering

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            raw = message["bytes"] if text is None else text.encode("utf-8", "surrogatepass")
            await self._free.acquire()
            task = asyncio.create_task(self._answer(raw))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _answer(self, raw: bytes) -> None:
        started: list[tuple[int, Viewer]] = []
        try:
            reply = await self._reply(raw, started)
            if reply.body:
                await self._say(reply.body)
            for number, viewer in started:  # only now: no event comes before the number it carries
                self._start(self._pump(number, viewer))
            started = []
        finally:
            self._free.release()
            for _, viewer in started:
                await self._follows.broadcast.leave(viewer)

    async def _reply(self, raw: bytes, started: list[tuple[int, Viewer]]) -> Reply:
        """The key is looked at for every message: it may have been revoked since the last one."""
        asking = self._asking
        visitor = await asking.admit(self._token, self._address)
        if isinstance(visitor, Reply):
            return visitor
        if len(raw) > asking.bytes_max(visitor):
            why = Refused("SEC-001", f"a message of more than {asking.bytes_max(visitor)} bytes", name="TooLarge")
            return asking.refuse(why)
        return await asking.answer(raw, visitor, self._address, self._methods(started))

    def _methods(self, started: list[tuple[int, Viewer]]) -> dict[str, Method]:
        """The door's methods, with those of a session in the hands of this one."""

        async def subscribe(_: Desk, visitor: Visitor, asked: Subscribe) -> Subscribed | Refused:
            if len(self._viewers) >= self._asking.settings.subscriptions_max:
                says = f"{len(self._viewers)} subscriptions of this connection are open"
                return Refused("SEC-001", says, "end one, or open another connection", "RateLimited")
            viewer = self._follows.viewer(visitor, self._token, asked.after, asked.types)
            if isinstance(viewer, Refused):
                return viewer
            number = next(self._numbers)
            self._viewers[number] = viewer
            started.append((number, viewer))
            return Subscribed(number, viewer.after)

        async def unsubscribe(_: Desk, __: Visitor, asked: Unsubscribe) -> Ended | Refused:
            viewer = self._viewers.pop(asked.subscription, None)
            if viewer is None:
                return Refused("EVT-001", f"no subscription {asked.subscription}", name="NotFound")
            viewer.end(_UNSUBSCRIBED)
            return Ended(viewer.after)

        return {
            **self._asking.methods,
            "auth.token": self._in_hand("auth.token", self._show_token),
            "events.subscribe": self._in_hand("events.subscribe", subscribe),
            "events.unsubscribe": self._in_hand("events.unsubscribe", unsubscribe),
        }

    def _in_hand(self, name: str, handle: Callable[[Desk, Visitor, Any], Awaitable[object]]) -> Method:
        return msgspec.structs.replace(self._asking.methods[name], handle=handle)

    async def _show_token(self, _: Desk, __: Visitor, asked: ShowToken) -> Shown | Refused:
        visitor = await self._asking.guests.who(asked.token)
        if isinstance(visitor, Refused):
            return visitor
        self._token = None if visitor is NOBODY else asked.token
        return Shown(visitor.name, visitor.role, visitor.account)

    # ------------------------------------------------------------------------------------ events

    def _start(self, pump: Any) -> None:
        task = asyncio.create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, number: int, viewer: Viewer) -> None:
        head = b'{"jsonrpc":"2.0","method":"event","params":{"subscription":%d,' % number
        try:
            while (frames := await self._follows.broadcast.next(viewer)) or viewer.bye is None:
                for frame in frames:
                    await self._say(head + frame.json[1:] + b"}")
                if not frames:
                    await self._notify("cursor", {"subscription": number, "number": viewer.after})
            if (why := viewer.bye) is not _UNSUBSCRIBED:
                data = {"name": why.name, "rule": why.rule, "hint": why.hint}
                said = {"subscription": number, "after": viewer.after, "message": why.says, "data": data}
                await self._notify("ended", said)
        finally:
            self._viewers.pop(number, None)
            await self._follows.broadcast.leave(viewer)

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        await self._say(_encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def _say(self, raw: bytes) -> None:
        """A client that takes nothing for long is dropped with the reason; it comes back with its cursor."""
        if self._bye is not None and self._bye[0] == SLOW:
            return
        slow_ms = self._asking.settings.slow_ms
        if not await self._wire.can_send(slow_ms / 1000):
            self._asking.tally.dropped["slow"] += 1
            self.finish(SLOW, f"slow: nothing taken for {slow_ms} ms, come back with your cursor")
            return
        await self._send({"type": "websocket.send", "text": raw.decode()})


_UNSUBSCRIBED: Final = Refused("EVT-001", "unsubscribed")


def _strange_origin(headers: list[Header], allowed: list[str]) -> str | None:
    """The origin of a web page that is neither ours nor allowed; programs send none."""
    found = dict(headers)
    origin = found.get(b"origin", b"").decode("latin-1")
    if not origin or origin in allowed:
        return None
    return None if origin.partition("://")[2] == found.get(b"host", b"").decode("latin-1") else origin
