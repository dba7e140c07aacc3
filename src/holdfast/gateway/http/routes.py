"""From paths to endpoints: a raw ASGI application. Every request is limited, counted and answered."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from holdfast.api.http.responses import CLOSE, Receive, Response, Scope, Send, send_head, send_response
from holdfast.api.limits.rate_limit import TokenBuckets
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.gateway.http.query_endpoints import QueryEndpoints
from holdfast.gateway.http.read_endpoints import ReadEndpoints
from holdfast.gateway.http.replies import CORS, PREFLIGHT, HttpFault, error, retry_after
from holdfast.gateway.http.request import Request
from holdfast.gateway.http.resumable_endpoints import ResumableEndpoints
from holdfast.gateway.http.upload_endpoints import UploadEndpoints
from holdfast.gateway.key_file import KeyFile
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.gateway.settings import GatewaySettings
from holdfast.ports import Clock

Handler = Callable[[Request], Awaitable[Response | None]]
"""Returns the answer, or None where it has sent one."""
ANY: Final = "*"
_log = structlog.get_logger()


class Route(NamedTuple):
    """A path; `*` stands for any one part of it."""

    path: tuple[str, ...]
    methods: dict[str, Handler]

    def matches(self, parts: tuple[str, ...]) -> bool:
        return len(parts) == len(self.path) and all(
            want in (ANY, part) for want, part in zip(self.path, parts, strict=True)
        )


class GatewayRoutes:
    """The ASGI application."""

    def __init__(
        self,
        uploads: UploadEndpoints,
        resumable: ResumableEndpoints,
        reads: ReadEndpoints,
        queries: QueryEndpoints,
        keys: KeyFile,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._keys, self._settings, self._metrics = keys, settings, metrics
        self._of_key = TokenBuckets(clock, settings.key_per_s, settings.key_burst)
        self._of_address = TokenBuckets(clock, settings.address_per_s, settings.address_burst)
        self.is_closing = False
        self.running = 0
        self._routes = _table(uploads, resumable, reads, queries)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, status = time.perf_counter(), 0

        async def counted(message: dict[str, object]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(str(message["status"]))
            await send(message)

        request = Request(scope, receive, counted, self._settings.stall_ms)  # type: ignore[arg-type]
        route = self._route(request.parts)
        self.running += 1
        try:
            await self._answer(request, route)
        finally:
            self.running -= 1
            name = "/".join(("", *route.path)) if route is not None else "(unknown)"
            self._metrics.count_request(name, status, time.perf_counter() - began)

    async def _answer(self, request: Request, route: Route | None) -> None:
        try:
            response = await self._handle(request, route)
        except HttpFault as fault:
            response = fault.response
        except (Unavailable, Corrupt) as fault:
            _log.warning("request_failed", path=request.path, reason=str(fault))
            response = error(503 if isinstance(fault, Unavailable) else 500, fault.message)
        except (ConnectionAbortedError, OSError):
            raise  # an answer that has begun ends here, and the client sees that it is not complete
        except Exception:
            _log.exception("request_failed", path=request.path)
            response = error(500, "internal error")
        if response is not None:
            if CLOSE in response.headers and request.method in ("POST", "PATCH"):
                await request.discard_body()
            sent = Response(response.status, response.body, (*response.headers, *CORS))
            if request.method == "HEAD":
                await send_head(request.send, sent)
                await request.send({"type": "http.response.body", "body": b""})
            else:
                await send_response(request.send, sent)

    async def _handle(self, request: Request, route: Route | None) -> Response | None:
        if self.is_closing:
            return error(503, "the gateway is stopping", retry_after(5_000))
        if request.method == "OPTIONS":
            return Response(200, b"", PREFLIGHT)
        self._limit(request)
        if route is None:
            return error(404, "not found")
        method = "GET" if request.method == "HEAD" and "HEAD" not in route.methods else request.method
        handler = route.methods.get(method)
        if handler is None:
            return error(405, "method not allowed", (b"allow", ", ".join(route.methods).encode()))
        return await handler(request)

    def _limit(self, request: Request) -> None:
        """A valid key has its own bucket; whoever shows none shares the one of its address."""
        reader = request.reader(self._keys)
        wait_ms = self._of_address.take(request.address) if reader is None else self._of_key.take(reader.id)
        if wait_ms:
            self._metrics.refusals["rate"] += 1
            raise HttpFault(error(429, "too many requests", retry_after(wait_ms), CLOSE))

    def _route(self, parts: tuple[str, ...]) -> Route | None:
        return next((route for route in self._routes if route.matches(parts)), None)


def _table(
    uploads: UploadEndpoints, resumable: ResumableEndpoints, reads: ReadEndpoints, queries: QueryEndpoints
) -> tuple[Route, ...]:
    """In order: the first that matches counts."""
    resolve: dict[str, Handler] = {"GET": reads.resolve, "HEAD": reads.resolve}
    binary: dict[str, Handler] = {"GET": reads.binary, "HEAD": reads.binary}
    return (
        Route((), {"GET": queries.info}),
        Route(("health",), {"GET": queries.health, "HEAD": queries.health}),
        Route(("stats",), {"GET": queries.stats}),
        Route(("metrics",), {"GET": queries.metrics}),
        Route(("upload",), {"POST": uploads.public}),
        Route(("upload", "private"), {"POST": uploads.private}),
        Route(("uploads",), {"POST": resumable.begin}),
        Route(("uploads", ANY), {"HEAD": resumable.offset, "PATCH": resumable.append, "DELETE": resumable.delete}),
        Route(("uploads", ANY, "finish"), {"POST": resumable.finish}),
        Route(("tags", "query"), {"POST": queries.tags}),
        Route(("query", "dataitem"), {"POST": queries.one_item}),
        Route(("resolve", ANY), resolve),
        Route(("resolve", "fast", ANY), resolve),
        Route(("binary", ANY), binary),
        Route(("binary", "fast", ANY), binary),
        Route(("provenance", ANY), {"GET": queries.provenance}),
        Route(("registry", ANY), {"GET": queries.registry}),
        Route(("post", ANY), {"POST": queries.post}),
        Route((ANY,), {"GET": queries.deprecated}),
    )
