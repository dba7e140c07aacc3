"""`/ws`: a WebSocket for JSON-RPC and for the events of its subscriptions (RPC-001, EVT-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from typing import Any, Final

import msgspec

from holdfast.api.derived_events import parse_cursor
from holdfast.api.http.connection import GuardedWebSocket
from holdfast.api.http.event_fanout import Subscriber
from holdfast.api.http.responses import Header, Receive, Response, Scope, Send, reject_websocket, token_of
from holdfast.api.http.sse import Subscriptions
from holdfast.api.node_access import ANONYMOUS, EVERYBODY, NodeAccess, RpcCall, RpcMethod
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, EventNo
from holdfast.core.key.model import Role

PROTOCOL: Final = "holdfast.v1"
TOKEN_PREFIX: Final = "holdfast.token."  # noqa: S105 - what comes before the token
"""Browsers cannot set headers: they offer `holdfast.v1` and `holdfast.token.<token>` as subprotocols."""
STOPPING, SLOW, IDLE = 1001, 4008, 4009
_encode = msgspec.json.Encoder().encode


# ------------------------------------------------------------------------------------------------ its own methods


class SetTokenParams(msgspec.Struct, frozen=True):
    """The token to authenticate with, for clients that cannot set a header."""

    token: str


class PrincipalView(msgspec.Struct, frozen=True):
    """Who the connection acts for."""

    name: str
    role: Role | None
    account: AccountId | None


class SubscribeParams(msgspec.Struct, frozen=True):
    """Subscribe to events: `event` notifications, each with its number, until you unsubscribe."""

    after: int | str | None = None
    """The number of the last event you have; 0 is from the beginning, none is from now on."""
    types: list[str] | None = None
    """Only events of these types."""


class SubscribeResult(msgspec.Struct, frozen=True):
    """The number that notifications of this subscription carry, and the cursor that it begins after."""

    subscription: int
    after: EventNo


class UnsubscribeParams(msgspec.Struct, frozen=True):
    """Which subscription to end."""

    subscription: int


class UnsubscribeResult(msgspec.Struct, frozen=True):
    """The cursor at which it ended."""

    after: EventNo


async def _needs_websocket(_: NodeAccess, __: RpcCall, ___: Any) -> Refused:
    return Refused("RPC-001", "this method needs a WebSocket", "open one at /ws, or GET /events")


def websocket_methods(*, is_public: bool) -> dict[str, RpcMethod]:
    """The methods that only a WebSocket carries out, as they are described on every connection."""
    roles = EVERYBODY if is_public else frozenset(Role)
    return {
        "auth.setToken": RpcMethod("Authenticate this connection.", SetTokenParams, PrincipalView, _needs_websocket),
        "events.subscribe": RpcMethod(
            "Subscribe to events from a cursor.", SubscribeParams, SubscribeResult, _needs_websocket, roles
        ),
        "events.unsubscribe": RpcMethod(
            "End a subscription.", UnsubscribeParams, UnsubscribeResult, _needs_websocket, roles
        ),
    }


# ------------------------------------------------------------------------------------------------ the session


class WebSocketSession:
    """One WebSocket from its handshake to its end."""

    def __init__(self, subscriptions: Subscriptions, scope: Scope, receive: Receive, send: Send) -> None:
        self._subscriptions, self._gateway = subscriptions, subscriptions.gateway
        self._scope, self._receive, self._send = scope, receive, send
        self._connection: GuardedWebSocket = scope["state"]["connection"]
        self._address = self._gateway.address_of(scope)
        self._token: str | None = None
        self._free = asyncio.Semaphore(self._gateway.settings.in_flight_max)
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._subscribers: dict[int, Subscriber] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[Any] | None = None
        self._close_reason: tuple[int, str] | None = None

    async def serve(self) -> None:
        await self._receive()  # the handshake's request
        offered: list[str] = self._scope["subprotocols"]
        if (refused := await self._why_not_open(offered)) is not None:
            await reject_websocket(self._send, refused)
            return
        await self._send({"type": "websocket.accept", "subprotocol": PROTOCOL if PROTOCOL in offered else None})
        self._task = asyncio.current_task()
        try:
            await self._listen()
        except asyncio.CancelledError:
            if self._close_reason is None or self._task is None:
                raise
            self._task.uncancel()
        finally:
            await self._shut_down()

    def finish(self, code: int, reason: str) -> None:
        """Read no more messages, answer those that were read, and close."""
        if self._close_reason is None and self._task is not None:
            self._close_reason = (code, reason)
            self._task.cancel()

    async def _shut_down(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        # A client that hangs up gets no answers, but its requests are finished all the same.
        await asyncio.gather(*self._pumps, *self._running, return_exceptions=True)
        if self._close_reason is not None:
            self._connection.hang_up(*self._close_reason)

    # ------------------------------------------------------------------------------------ handshake

    async def _why_not_open(self, offered: list[str]) -> Response | None:
        headers: list[Header] = self._scope["headers"]
        if origin := _foreign_origin(headers, self._gateway.settings.origins.split()):
            refusal = Refused("SEC-001", f"pages of {origin!r:.80} may not connect", "see http.origins", "Forbidden")
            return self._gateway.refuse(refusal)
        token = token_of(headers)
        if token is None:
            token = next((each.removeprefix(TOKEN_PREFIX) for each in offered if each.startswith(TOKEN_PREFIX)), None)
        principal = await self._gateway.admit(token, self._scope)
        if isinstance(principal, Response):
            return principal
        assert not isinstance(token, Refused)
        self._token = token
        return self._gateway.why_not_stay(self._scope)

    # ------------------------------------------------------------------------------------ requests

    async def _listen(self) -> None:
        while True:
            message = await self._next_message()
            if message is None:
                self._gateway.metrics.disconnected["idle"] += 1
                self._close_reason = (IDLE, "idle: no message and no subscription")
                return
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            raw = message["bytes"] if text is None else text.encode("utf-8", "surrogatepass")
            await self._free.acquire()
            task = asyncio.create_task(self._answer(raw))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _next_message(self) -> MutableMapping[str, Any] | None:
        """The next message; None where a client without a key has been idle for too long. A ping is no message."""
        while True:
            try:
                async with asyncio.timeout(self._gateway.settings.idle_ms / 1000 if self._token is None else None):
                    return await self._receive()
            except TimeoutError:
                if not self._subscribers and not self._running:
                    return None

    async def _answer(self, raw: bytes) -> None:
        started: list[tuple[int, Subscriber]] = []
        try:
            reply = await self._reply(raw, started)
            if reply.body:
                await self._send_text(reply.body)
            for number, subscriber in started:  # only now: no event is sent before the number that it carries
                self._start(self._pump(number, subscriber))
            started = []
        finally:
            self._free.release()
            for _, subscriber in started:
                await self._subscriptions.fanout.leave(subscriber)

    async def _reply(self, raw: bytes, started: list[tuple[int, Subscriber]]) -> Response:
        """Authenticated for every message: the key may have been revoked since the last one."""
        gateway = self._gateway
        principal = await gateway.admit(self._token, self._scope)
        if isinstance(principal, Response):
            return principal
        if len(raw) > gateway.bytes_max(principal):
            says = f"a message of more than {gateway.bytes_max(principal)} bytes"
            return gateway.refuse(Refused("SEC-001", says, name="TooLarge"))
        return await gateway.answer(raw, principal, self._address, self._methods(started))

    def _methods(self, started: list[tuple[int, Subscriber]]) -> dict[str, RpcMethod]:
        """The server's methods, with those of a WebSocket bound to this one."""

        async def subscribe(_: NodeAccess, call: RpcCall, params: SubscribeParams) -> SubscribeResult | Refused:
            if len(self._subscribers) >= self._gateway.settings.subscriptions_max:
                says = f"{len(self._subscribers)} subscriptions of this connection are open"
                return Refused("SEC-001", says, "end one, or open another connection", "RateLimited")
            cursor = None if params.after is None else parse_cursor(str(params.after))
            if params.after is not None and cursor is None:
                return Refused("EVT-001", "params: after: a number, or number.index", name="InvalidParams")
            subscriber = self._subscriptions.subscribe(call.principal, self._token, cursor, params.types)
            if isinstance(subscriber, Refused):
                return subscriber
            number = next(self._numbers)
            self._subscribers[number] = subscriber
            started.append((number, subscriber))
            return SubscribeResult(number, subscriber.after)

        async def unsubscribe(_: NodeAccess, __: RpcCall, params: UnsubscribeParams) -> UnsubscribeResult | Refused:
            subscriber = self._subscribers.pop(params.subscription, None)
            if subscriber is None:
                return Refused("EVT-001", f"no subscription {params.subscription}", name="NotFound")
            subscriber.end(_UNSUBSCRIBED)
            return UnsubscribeResult(subscriber.after)

        return {
            **self._gateway.methods,
            "auth.setToken": self._bound("auth.setToken", self._set_token),
            "events.subscribe": self._bound("events.subscribe", subscribe),
            "events.unsubscribe": self._bound("events.unsubscribe", unsubscribe),
        }

    def _bound(self, name: str, handle: Callable[[NodeAccess, RpcCall, Any], Awaitable[object]]) -> RpcMethod:
        return msgspec.structs.replace(self._gateway.methods[name], handle=handle)

    async def _set_token(self, _: NodeAccess, __: RpcCall, params: SetTokenParams) -> PrincipalView | Refused:
        principal = await self._gateway.authenticator.authenticate(params.token)
        if isinstance(principal, Refused):
            return principal
        self._token = None if principal is ANONYMOUS else params.token
        return PrincipalView(principal.name, principal.role, principal.account)

    # ------------------------------------------------------------------------------------ events

    def _start(self, pump: Any) -> None:
        task = asyncio.create_task(pump)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, number: int, subscriber: Subscriber) -> None:
        head = b'{"jsonrpc":"2.0","method":"event","params":{"subscription":%d,' % number
        try:
            while (frames := await self._subscriptions.fanout.next(subscriber)) or subscriber.end_reason is None:
                for frame in frames:
                    await self._send_text(head + frame.json[1:] + b"}")
                if not frames:
                    await self._notify("cursor", {"subscription": number, "number": subscriber.after})
            if (reason := subscriber.end_reason) is not _UNSUBSCRIBED:
                data = {"name": reason.name, "rule": reason.rule, "hint": reason.hint}
                ended = {"subscription": number, "after": subscriber.after, "message": reason.message, "data": data}
                await self._notify("ended", ended)
        finally:
            self._subscribers.pop(number, None)
            await self._subscriptions.fanout.leave(subscriber)

    async def _notify(self, method: str, params: dict[str, Any]) -> None:
        await self._send_text(_encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def _send_text(self, raw: bytes) -> None:
        """A client that reads nothing for too long is disconnected with the reason; it can resume from its cursor."""
        if self._close_reason is not None and self._close_reason[0] == SLOW:
            return
        slow_ms = self._gateway.settings.slow_ms
        if not await self._connection.can_send(slow_ms / 1000):
            self._gateway.metrics.disconnected["slow"] += 1
            self.finish(SLOW, f"slow: nothing read for {slow_ms} ms, resume from your cursor")
            return
        await self._send({"type": "websocket.send", "text": raw.decode()})


_UNSUBSCRIBED: Final = Refused("EVT-001", "unsubscribed", "subscribe again to go on")


def _foreign_origin(headers: list[Header], allowed: list[str]) -> str | None:
    """The origin of a web page that is neither ours nor allowed. Programs that are not browsers send none."""
    by_name = dict(headers)
    origin = by_name.get(b"origin", b"").decode("latin-1")
    if not origin or origin in allowed:
        return None
    return None if origin.partition("://")[2] == by_name.get(b"host", b"").decode("latin-1") else origin
