"""`GET /events`: server-sent events whose id is the event's number, so that a browser resumes by itself (EVT-001)."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

import msgspec

from holdfast.core.refusal import Refused
from holdfast.core.values import EventNo
from holdfast.doors.desk import Visitor, why_not_allowed
from holdfast.doors.http.asking import Asking
from holdfast.doors.http.broadcast import Broadcast, Viewer
from holdfast.doors.http.connection import Wire
from holdfast.doors.http.guests import token_of
from holdfast.doors.http.replies import NO_SNIFFING, NO_STORE, OK, Header, Receive, Reply, Scope, Send, say
from holdfast.doors.http.topics import Wanted, wanted

METHOD: Final = "events.subscribe"
FIRST: Final = b"retry: 2000\n\n"
HEAD: Final[list[Header]] = [
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
    NO_SNIFFING,
    NO_STORE,
]
_DIGITS_MAX: Final = 20
_LEFT: Final = Refused("EVT-001", "the client has left")


class Follows:
    """What both ways to follow events share: may they, from where, is there room."""

    def __init__(self, asking: Asking, broadcast: Broadcast) -> None:
        self.asking, self.broadcast = asking, broadcast

    def viewer(
        self, visitor: Visitor, token: str | None, after: int | None, topics: list[str] | None
    ) -> Viewer | Refused:
        """Somebody who has joined, or why they may not."""
        settings = self.asking.settings
        if denied := why_not_allowed(visitor, METHOD, self.asking.methods[METHOD]):
            return denied
        seen = wanted(visitor, topics, is_public=settings.public_events)
        if isinstance(seen, Refused):
            return seen
        if len(self.broadcast.viewers) >= settings.subscribers_max:
            says = f"{settings.subscribers_max} follow already"
            return Refused("SEC-001", says, "try again later, or at another node", "Unavailable")
        return self._joined(visitor, token, after, seen)

    def _joined(self, visitor: Visitor, token: str | None, after: int | None, seen: Wanted) -> Viewer | Refused:
        source = self.asking.desk.source
        start = source.standing().tip.last if after is None else EventNo(after)
        if wrong := source.tail.why_not_follow(start):
            return wrong
        guests = self.asking.guests
        viewer = Viewer(start, seen, lambda: guests.at_once(token) == visitor)
        self.broadcast.join(viewer)
        return viewer


class Events:
    """The stream itself."""

    def __init__(self, follows: Follows) -> None:
        self._follows, self._asking = follows, follows.asking

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        viewer = await self._welcome(scope)
        if isinstance(viewer, Reply):
            await say(send, viewer)
            return
        wire: Wire = scope["state"]["wire"]
        wire.on_lost(lambda: viewer.end(_LEFT))
        try:
            await send({"type": "http.response.start", "status": OK, "headers": HEAD})
            await self._pour(viewer, wire, send)
        finally:
            await self._follows.broadcast.leave(viewer)

    async def _welcome(self, scope: Scope) -> Viewer | Reply:
        token = token_of(scope["headers"])
        visitor = await self._asking.admit(token, address_of(scope))
        if isinstance(visitor, Reply):
            return visitor
        asked = _asked(scope)
        if not isinstance(asked, Refused):
            assert not isinstance(token, Refused)
            viewer = self._follows.viewer(visitor, token, *asked)
            if isinstance(viewer, Viewer):
                return viewer
            asked = viewer
        return self._asking.refuse(asked)

    async def _pour(self, viewer: Viewer, wire: Wire, send: Send) -> None:
        chunk, bye, slow_s = FIRST, None, self._asking.settings.slow_ms / 1000
        while True:
            if not await wire.can_send(slow_s):
                self._asking.tally.dropped["slow"] += 1
                wire.abort()
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": bye is None})
            if bye is not None:
                return
            frames = await self._follows.broadcast.next(viewer)
            bye = None if frames else viewer.bye
            chunk = b"".join([frame.stream for frame in frames]) or b": still here\nid: %d\n\n" % viewer.after
            if bye is not None:
                chunk += _farewell(bye)


def _farewell(why: Refused) -> bytes:
    said = msgspec.json.encode({"name": why.name, "rule": why.rule, "message": why.says, "hint": why.hint})
    return b"event: end\ndata: %s\n\n" % said


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _asked(scope: Scope) -> tuple[int | None, list[str] | None] | Refused:
    """From where and what: a browser that comes back says the last id it has seen, which is newer than its address."""
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if strange := sorted(query.keys() - {"after", "types"}):
        return Refused("EVT-001", f"{strange[0]!r:.80}: no such parameter", "known are after, types", "InvalidParams")
    last = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), None)
    after = last if last else query.get("after", [None])[-1]
    if after is not None and not (after.isascii() and after.isdigit() and len(after) <= _DIGITS_MAX):
        return Refused("EVT-001", f"after: {after!r:.40} is not a number", "0 is from the beginning", "InvalidParams")
    types = [name for part in query["types"] for name in part.split(",")] if "types" in query else None
    return None if after is None else int(after), types
