"""`GET /events`: server-sent events. Their id is the event's number, so that a browser resumes by itself (EVT-001).

`after` is a cursor, `types` are names of events, and with `follow=false` it ends at the newest event.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

import msgspec

from holdfast.api.derived_events import Cursor, parse_cursor
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.event_fanout import COMPLETE, EventFanout, Subscriber
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.responses import (
    CLOSE,
    NO_STORE,
    NOSNIFF,
    OK,
    Header,
    Receive,
    Response,
    Scope,
    Send,
    refusal_json,
    send_response,
)
from holdfast.api.node_access import Principal, why_not_allowed
from holdfast.api.public_events import EventFilter, event_filter
from holdfast.core.base.errors import Refused

SUBSCRIBE_METHOD: Final = "events.subscribe"
RETRY_LINE: Final = b"retry: 2000\n\n"
SSE_HEADERS: Final[list[Header]] = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
    NOSNIFF,
    NO_STORE,
    CLOSE,
]
"""A connection with a stream takes no more requests, and its client is told so."""
_CLIENT_LEFT: Final = Refused("EVT-001", "the client has left", "connect again and continue after the last event")


class Subscriptions:
    """What SSE and WebSocket share: whether a principal may subscribe, from which event, and how many may."""

    def __init__(self, gateway: Gateway, fanout: EventFanout) -> None:
        self.gateway, self.fanout = gateway, fanout

    def subscribe(
        self,
        principal: Principal,
        token: str | None,
        cursor: Cursor | None,
        topics: list[str] | None,
        *,
        is_following: bool = True,
    ) -> Subscriber | Refused:
        """A subscriber that has joined the fan-out, or why not. One that does not follow ends at the newest event."""
        settings = self.gateway.settings
        if denied := why_not_allowed(principal, SUBSCRIBE_METHOD, self.gateway.methods[SUBSCRIBE_METHOD].roles):
            return denied
        wanted = event_filter(principal, topics, is_public=settings.public_events)
        if isinstance(wanted, Refused):
            return wanted
        if len(self.fanout.subscribers) >= settings.subscribers_max:
            message = f"{settings.subscribers_max} subscriptions are open already"
            return Refused("SEC-001", message, "try again later, or at another node", "Unavailable")
        return self._join(principal, token, cursor, wanted, is_following)

    def _join(
        self, principal: Principal, token: str | None, cursor: Cursor | None, wanted: EventFilter, is_following: bool
    ) -> Subscriber | Refused:
        source = self.gateway.access.source
        newest = source.replication_status().tip.last
        start = Cursor(newest) if cursor is None else cursor
        if refusal := source.event_stream.why_not_follow(start.after):
            return refusal
        authenticator = self.gateway.authenticator
        until = None if is_following else newest
        subscriber = Subscriber(start, wanted, lambda: authenticator.authenticate_undurable(token) == principal, until)
        self.fanout.join(subscriber)
        return subscriber


class SseEndpoint:
    """Sends the events of one subscription until the client leaves or the subscription ends."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions, self._gateway = subscriptions, subscriptions.gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        subscriber = await self._subscribe(scope)
        if isinstance(subscriber, Response):
            await send_response(send, subscriber)
            return
        connection: ClientConnection = scope["state"]["connection"]
        connection.on_lost(lambda: subscriber.end(_CLIENT_LEFT))
        try:
            await send({"type": "http.response.start", "status": OK, "headers": SSE_HEADERS})
            await self._send_events(subscriber, connection, send)
        finally:
            await self._subscriptions.fanout.leave(subscriber)

    async def _subscribe(self, scope: Scope) -> Subscriber | Response:
        token = self._gateway.token_of(scope)
        principal = await self._gateway.admit(token, scope)
        if isinstance(principal, Response):
            return principal
        if (full := self._gateway.why_not_stay(scope)) is not None:
            return full
        query = _read_query(scope)
        if isinstance(query, Refused):
            return self._gateway.refuse(query)
        assert not isinstance(token, Refused)
        cursor, topics, is_following = query
        subscriber = self._subscriptions.subscribe(principal, token, cursor, topics, is_following=is_following)
        return self._gateway.refuse(subscriber) if isinstance(subscriber, Refused) else subscriber

    async def _send_events(self, subscriber: Subscriber, connection: ClientConnection, send: Send) -> None:
        chunk, end_reason, slow_s = RETRY_LINE, None, self._gateway.settings.slow_ms / 1000
        while True:
            if not await connection.can_send(slow_s):
                self._gateway.metrics.disconnected["slow"] += 1
                connection.abort()
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": end_reason is None})
            if end_reason is not None:
                return
            frames = await self._subscriptions.fanout.next(subscriber)
            end_reason = None if frames else subscriber.end_reason
            chunk = b"".join([frame.sse for frame in frames]) or b": still here\nid: %d\n\n" % subscriber.after
            if end_reason is not None:
                chunk += _end_event(end_reason)


def _end_event(reason: Refused) -> bytes:
    return b"event: end\ndata: %s\n\n" % msgspec.json.encode({} if reason is COMPLETE else refusal_json(reason))


def _read_query(scope: Scope) -> tuple[Cursor | None, list[str] | None, bool] | Refused:
    """After which event, which topics, and whether to follow.

    A browser that reconnects sends the last id it has seen, which is newer than the `after` of its address.
    """
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if unknown := sorted(query.keys() - {"after", "types", "follow"}):
        hint = "known are after, types, follow"
        return Refused("EVT-001", f"{unknown[0]!r:.80}: no such parameter", hint, "InvalidParams")
    follow = query.get("follow", ["true"])[-1]
    if follow not in ("true", "false"):
        return Refused("EVT-001", f"follow: {follow!r:.40} is not a boolean", "true or false", "InvalidParams")
    last = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), None)
    after = last if last else query.get("after", [None])[-1]
    cursor = parse_cursor(after) if after is not None else None
    if after is not None and cursor is None:
        return Refused("EVT-001", f"after: {after!r:.40} is not a number", "0 is from the beginning", "InvalidParams")
    types = [name for part in query["types"] for name in part.split(",")] if "types" in query else None
    return cursor, types, follow == "true"
