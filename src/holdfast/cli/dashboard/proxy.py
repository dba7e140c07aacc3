"""The page of a node on this machine's loopback: files from here, everything else from the node, with its token.

The browser never has the token. It has a cookie that the printed address gives it, so that other users of this
machine, and web pages of other origins, cannot use the token through this port (SEC-001).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from hmac import compare_digest
from typing import Final
from urllib.parse import parse_qs

import httpx

from holdfast.api.dashboard.page import CSP, MEDIA_TYPES, NO_REFERRER, PageFile, page_response
from holdfast.api.http.page_sessions import named_cookie, why_not_same_origin
from holdfast.api.http.responses import OK, Receive, Response, Scope, Send, refusal_response, send_response
from holdfast.api.http.rpc_endpoint import ClientLeft, read_body
from holdfast.client.node_url import NodeUrl
from holdfast.core.base.errors import Refused, Unavailable

OPEN_PATH: Final = "/open"
COOKIE_STEM: Final = "holdfast_dashboard"
BODY_BYTES_MAX: Final = 4 << 20
CONNECT_S: Final = 10.0
OPENED: Final = (
    b'<!doctype html><title>Holdfast</title><link rel="icon" href="data:,">'
    b'<meta http-equiv="refresh" content="0;url=/"><a href="/">The page</a>'
)
"""Not a redirect: a browser that followed a link of another site here would not send the cookie along with it."""
READ: Final = frozenset({"GET", "HEAD"})
FORWARDED: Final = {
    "/rpc": frozenset({"POST"}),
    "/v1/session": READ,
    "/v1/live": READ,
    "/v1/jobs/": READ,
    "/v1/outputs/": READ,
    "/events": READ,
    "/openrpc.json": READ,
    "/metrics": READ,
    "/healthz": READ,
    "/readyz": READ,
}
"""What the page asks of a node; a path that ends in a slash stands for all below it."""
REQUEST_HEADERS: Final = frozenset({b"accept", b"content-type", b"last-event-id", b"range"})
OWN_HEADERS: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "content-encoding", "content-length", "upgrade"}
    | {"date", "server", "set-cookie"}
)
"""Of the connection to the node. All others are passed on: those of an output keep what is in it from running here."""


class DashboardProxy:
    """An ASGI application for one person who looks at one node."""

    def __init__(self, node: NodeUrl, http: httpx.AsyncClient, files: dict[str, PageFile], port: int) -> None:
        self._node, self._http, self._files = node, http, files
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._cookie, self.key = f"{COOKIE_STEM}_{port}", secrets.token_urlsafe(24)
        """Cookies do not tell ports apart, so the name does: two nodes can be looked at at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            response = self._answer_here(scope)
            if response is not None:
                await send_response(send, response)
            else:
                await self._forward(scope, receive, send)
        except (ClientLeft, OSError):
            pass  # the browser has closed the connection

    def _answer_here(self, scope: Scope) -> Response | None:
        """A refusal, the cookie, or a file of the page; None for what the node has to answer."""
        path, method = scope["path"], scope["method"]
        if (refusal := self._why_not_local(scope)) is not None:
            return refusal_response(refusal)
        if path == OPEN_PATH and method == "GET":
            return self._open(scope)
        if not compare_digest(named_cookie(scope, self._cookie).encode(), self.key.encode()):
            message = "this page is for whoever started `holdfast dashboard`"
            return refusal_response(Refused("SEC-001", message, "open the address that it printed", "Forbidden"))
        if path in self._files and method in READ:
            return page_response(scope, self._files[path])
        methods = next((allowed for known, allowed in FORWARDED.items() if _is_below(path, known)), None)
        if methods is None:
            return refusal_response(Refused("RPC-001", f"nothing at {path!r:.80}", "the page is at /", "NotFound"))
        if method in methods:
            return None
        message, hint = f"{method!r:.20} is not passed on to {path}", "the token is that of `holdfast dashboard`"
        return refusal_response(Refused("SEC-001", message, hint, "Forbidden"))

    def _why_not_local(self, scope: Scope) -> Refused | None:
        """A name that somebody else's server points at this machine is not ours, nor are pages of other origins."""
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        if host not in self._hosts:
            return Refused("SEC-001", f"this is not {host!r:.80}", "open the address that was printed", "Forbidden")
        return why_not_same_origin(scope)

    def _open(self, scope: Scope) -> Response:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("key", [""])[-1]
        if not compare_digest(given.encode(), self.key.encode()):
            return refusal_response(
                Refused("SEC-001", "that is not the key", "open the address that was printed", "Forbidden")
            )
        cookie = f"{self._cookie}={self.key}; HttpOnly; SameSite=Strict; Path=/"
        return Response(
            OK, OPENED, ((b"content-type", MEDIA_TYPES[".html"]), (b"set-cookie", cookie.encode()), CSP, NO_REFERRER)
        )

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, BODY_BYTES_MAX)
        if body is None:
            message = f"a body of more than {BODY_BYTES_MAX} bytes"
            await send_response(send, refusal_response(Refused("SEC-001", message, "send less", "TooLarge")))
            return
        request = self._http.build_request(
            scope["method"],
            httpx.URL(self._node.base).copy_with(raw_path=_raw_path(scope)),
            headers=[pair for pair in scope["headers"] if pair[0] in REQUEST_HEADERS],
            content=body,
            timeout=httpx.Timeout(CONNECT_S, read=None),  # a stream is silent for as long as nothing happens
        )
        try:
            answer = await self._http.send(request, stream=True)
        except (httpx.TransportError, OSError) as fault:
            await send_response(send, refusal_response(unreachable(self._node, fault)))
            return
        try:
            await _pass_on(answer, receive, send)
        finally:
            await answer.aclose()


def unreachable(node: NodeUrl, fault: Exception) -> Unavailable:
    """The node does not answer."""
    hint = "is it up? the page goes on by itself when it is back"
    return Unavailable("RPC-001", f"no answer from {node}: {fault or type(fault).__name__}", hint)


async def _pass_on(answer: httpx.Response, receive: Receive, send: Send) -> None:
    """As it comes, until the node ends it or the browser leaves."""
    headers = [(name, value) for name, value in answer.headers.raw if name.decode().lower() not in OWN_HEADERS]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})

    async def copy() -> None:
        async for chunk in _chunks(answer):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def until_left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.create_task(copy()), asyncio.create_task(until_left())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _chunks(answer: httpx.Response) -> AsyncIterator[bytes]:
    """What the node sent; a stream that breaks ends, and the browser asks again."""
    try:
        async for chunk in answer.aiter_bytes():
            yield chunk
    except httpx.TransportError:
        if answer.status_code != OK or "event-stream" not in answer.headers.get("content-type", ""):
            raise


def _is_below(path: str, known: str) -> bool:
    return path.startswith(known) if known.endswith("/") else path == known


def _raw_path(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    raw: bytes = scope["raw_path"]
    return raw + (b"?" + query if query else b"")
