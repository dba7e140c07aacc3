"""From paths to endpoints: a raw ASGI application, so that a request passes nothing that it does not need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from holdfast.api.dashboard import live as live_overview
from holdfast.api.dashboard import session_endpoint
from holdfast.api.dashboard.live import LiveOverview
from holdfast.api.dashboard.page import load_page, page_handlers
from holdfast.api.http.beacon import blob_endpoint as beacon
from holdfast.api.http.beacon import engine_endpoint as engine_api
from holdfast.api.http.cors import CorsPolicy
from holdfast.api.http.event_fanout import EventFanout
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.health import HealthEndpoints
from holdfast.api.http.responses import (
    CLOSE,
    METHOD_NOT_ALLOWED,
    Receive,
    Scope,
    Send,
    refusal_response,
    reject_websocket,
    send_response,
)
from holdfast.api.http.rpc_endpoint import RpcEndpoint
from holdfast.api.http.sse import SseEndpoint, Subscriptions
from holdfast.api.http.v1 import bulk_endpoint as bulk
from holdfast.api.http.v1 import input_endpoint as inputs
from holdfast.api.http.v1 import log_endpoint as logs
from holdfast.api.http.v1 import output_endpoint as outputs
from holdfast.api.http.v1 import package_endpoint as packages
from holdfast.api.http.websocket import STOPPING, WebSocketSession
from holdfast.core.base.errors import Refused

WEBSOCKET_PATH: Final = "/ws"
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
_STOPPING: Final = Refused("RPC-001", "the node is stopping", "try again in a moment", "Unavailable")
_log = structlog.get_logger()


class Routes:
    """The server's paths, and the WebSockets that are open."""

    def __init__(self, gateway: Gateway, fanout: EventFanout, live: LiveOverview) -> None:
        self._gateway, self._fanout, self._live = gateway, fanout, live
        self._subscriptions, self._health = Subscriptions(gateway, fanout), HealthEndpoints(gateway)
        self._sessions: set[WebSocketSession] = set()
        self._is_closing = False
        self._cors = CorsPolicy(gateway.settings.cors_origins)
        post: dict[str, Handler] = {"POST": RpcEndpoint(gateway)}
        visits = session_endpoint.SessionEndpoint(gateway)
        self._paths: dict[str, dict[str, Handler]] = {
            "/rpc": post,
            "/": post,
            "/events": {"GET": SseEndpoint(self._subscriptions)},
            "/metrics": _get_and_head(self._health.metrics),
            "/healthz": _get_and_head(self._health.alive),
            "/readyz": _get_and_head(self._health.ready),
            engine_api.PATH: {"POST": engine_api.EngineEndpoint(gateway)},
            bulk.PATH: {"POST": bulk.BulkEndpoint(gateway)},
            live_overview.PATH: {"GET": live_overview.LiveEndpoint(gateway, live)},
            session_endpoint.PATH: {"GET": visits.show, "POST": visits.sign_in, "DELETE": visits.sign_out},
            "/openrpc.json": _get_and_head(self._health.document),
        }
        receive_input = inputs.InputEndpoint(gateway)
        for path, handler in page_handlers(gateway, load_page()).items():
            self._paths[path] = self._paths.get(path, {}) | _get_and_head(handler)
        self._folders: dict[str, dict[str, Handler]] = {
            outputs.PREFIX: _get_and_head(outputs.OutputEndpoint(gateway)),
            packages.PREFIX: {"GET": packages.PackageEndpoint(gateway)},
            beacon.PREFIX: _get_and_head(beacon.BlobEndpoint(gateway)),
            logs.PREFIX: {"GET": logs.LogEndpoint(gateway)},
            inputs.PREFIX: {"PUT": receive_input, "HEAD": receive_input},
        }
        """Paths that end in an id."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_websocket(scope, receive, send)
            return
        if (preflight := self._cors.preflight(scope)) is not None:
            await send_response(send, self._gateway.why_not_public(self._gateway.address_of(scope)) or preflight)
            return
        send = self._cors.readable(scope, send)
        handlers = self._paths.get(scope["path"]) or self._in_folder(scope["path"])
        handler = None if handlers is None else handlers.get(scope["method"])
        if handler is None or self._is_closing:
            await self._refuse(scope, handlers, send)
            return
        try:
            await handler(scope, receive, send)
        except Exception as fault:
            _log.exception("request_failed", path=scope["path"])
            # Where a response has begun this raises, and the connection ends.
            await send_response(send, self._gateway.refuse(fault, CLOSE))

    def _in_folder(self, path: str) -> dict[str, Handler] | None:
        return next((handlers for prefix, handlers in self._folders.items() if path.startswith(prefix)), None)

    def begin_shutdown(self) -> None:
        """End subscriptions and WebSockets; requests that run are answered."""
        self._is_closing = self._health.is_closing = True
        self._fanout.end(_STOPPING)
        for viewer in list(self._live.viewers):
            viewer.end()
        for session in list(self._sessions):
            session.finish(STOPPING, "the node is stopping, resume from your cursor")

    @property
    def is_empty(self) -> bool:
        return not self._sessions and not self._fanout.subscribers and not self._live.viewers

    async def _refuse(self, scope: Scope, handlers: dict[str, Handler] | None, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if self._is_closing:
            response = self._gateway.refuse(_STOPPING, CLOSE)
        elif path == WEBSOCKET_PATH:
            refusal = Refused("RPC-001", f"{WEBSOCKET_PATH} is a WebSocket", "or POST /rpc", "InvalidRequest")
            response = self._gateway.refuse(refusal, (b"upgrade", b"websocket"), status=426)
        elif handlers is None:
            hint = f"there are {', '.join([*self._paths, *self._folders, WEBSOCKET_PATH])}"
            response = self._gateway.refuse(Refused("RPC-001", f"nothing at {path!r:.80}", hint, "NotFound"))
        else:
            allowed = ", ".join(handlers)
            message = f"{method!r:.20} is not a method of {path}"
            refusal = Refused("RPC-001", message, f"use {allowed}", "InvalidRequest")
            response = self._gateway.refuse(refusal, (b"allow", allowed.encode()), status=METHOD_NOT_ALLOWED)
        await send_response(send, response)

    async def _open_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != WEBSOCKET_PATH or self._is_closing:
            message = f"no WebSocket at {scope['path']!r:.80}"
            missing = Refused("RPC-001", message, f"it is at {WEBSOCKET_PATH}", "NotFound")
            await receive()
            await reject_websocket(send, refusal_response(_STOPPING if self._is_closing else missing))
            return
        session = WebSocketSession(self._subscriptions, scope, receive, send)
        self._sessions.add(session)
        try:
            await session.serve()
        except OSError:
            pass  # the client left in the middle of a message
        except Exception:
            _log.exception("websocket_failed")
        finally:
            self._sessions.discard(session)


def _get_and_head(handler: Handler) -> dict[str, Handler]:
    return {"GET": handler, "HEAD": handler}
