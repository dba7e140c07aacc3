"""Which path is whose: a raw ASGI application, so that a request passes nothing that it does not need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from holdfast.core.refusal import Refused
from holdfast.doors.http.asking import Asking
from holdfast.doors.http.broadcast import Broadcast
from holdfast.doors.http.events import Events, Follows
from holdfast.doors.http.posts import Posts
from holdfast.doors.http.probes import Probes
from holdfast.doors.http.replies import CLOSE, METHOD_NOT_ALLOWED, Receive, Scope, Send, head_of, no, say
from holdfast.doors.http.session import STOPPING, Session

SOCKET: Final = "/ws"
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
_STOPPING: Final = Refused("RPC-001", "the node is stopping", "ask again in a moment", "Unavailable")
_log = structlog.get_logger()


class Site:
    """The door's paths and who is in them."""

    def __init__(self, asking: Asking, broadcast: Broadcast) -> None:
        self._asking, self._broadcast = asking, broadcast
        self._follows, self._probes = Follows(asking, broadcast), Probes(asking)
        self._sessions: set[Session] = set()
        self._is_closing = False
        post: dict[str, Handler] = {"POST": Posts(asking)}
        self._paths: dict[str, dict[str, Handler]] = {
            "/rpc": post,
            "/": post,
            "/events": {"GET": Events(self._follows)},
            "/metrics": _looked_at(self._probes.metrics),
            "/healthz": _looked_at(self._probes.alive),
            "/readyz": _looked_at(self._probes.ready),
            "/openrpc.json": _looked_at(self._probes.document),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._welcome(scope, receive, send)
            return
        found = self._paths.get(scope["path"])
        handler = None if found is None else found.get(scope["method"])
        if handler is None or self._is_closing:
            await self._turn_away(scope, found, send)
            return
        try:
            await handler(scope, receive, send)
        except Exception as fault:
            _log.exception("a request failed inside", path=scope["path"])
            await say(send, self._asking.refuse(fault, CLOSE))  # raises after half an answer, which ends the connection

    def farewell(self) -> None:
        """End what would go on for ever; what is being answered is answered."""
        self._is_closing = self._probes.is_closing = True
        self._broadcast.end(_STOPPING)
        for session in list(self._sessions):
            session.finish(STOPPING, "the node is stopping, come back with your cursor")

    @property
    def is_empty(self) -> bool:
        return not self._sessions and not self._broadcast.viewers

    async def _turn_away(self, scope: Scope, found: dict[str, Handler] | None, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if self._is_closing:
            reply = self._asking.refuse(_STOPPING, CLOSE)
        elif path == SOCKET:
            why = Refused("RPC-001", f"{SOCKET} is a WebSocket", "or POST /rpc", "InvalidRequest")
            reply = self._asking.refuse(why, (b"upgrade", b"websocket"), status=426)
        elif found is None:
            hint = f"there are {', '.join([*self._paths, SOCKET])}"
            reply = self._asking.refuse(Refused("RPC-001", f"nothing at {path!r:.80}", hint, "NotFound"))
        else:
            allowed = ", ".join(found)
            why = Refused("RPC-001", f"{method!r:.20} {path}: not that way", f"use {allowed}", "InvalidRequest")
            reply = self._asking.refuse(why, (b"allow", allowed.encode()), status=METHOD_NOT_ALLOWED)
        await say(send, reply)

    async def _welcome(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != SOCKET or self._is_closing:
            gone = Refused("RPC-001", f"no WebSocket at {scope['path']!r:.80}", f"it is at {SOCKET}", "NotFound")
            reply = no(_STOPPING if self._is_closing else gone)
            await receive()
            start = {"type": "websocket.http.response.start", "status": reply.status, "headers": head_of(reply)}
            await send(start)
            await send({"type": "websocket.http.response.body", "body": reply.body})
            return
        session = Session(self._follows, scope, receive, send)
        self._sessions.add(session)
        try:
            await session.serve()
        except OSError:
            pass  # they left in the middle of a word
        except Exception:
            _log.exception("a session failed inside")
        finally:
            self._sessions.discard(session)


def _looked_at(handler: Handler) -> dict[str, Handler]:
    return {"GET": handler, "HEAD": handler}
