"""The page at `/`: a few built files, served from memory. Without them, plain HTML that says where to go.

`make page` builds them from `page/`; they are part of a wheel, not of the repository.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from holdfast.__about__ import __version__
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.responses import OK, Header, Receive, Response, Scope, Send, send_head, send_response

STATIC: Final = Path(__file__).parent / "static"
MEDIA_TYPES: Final = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css",
}
DOCS_PATH: Final = "/docs"
"""The same page, which begins at the description of the API there."""
NOT_MODIFIED: Final = 304
CSP: Final[Header] = (
    b"content-security-policy",
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'",
)
NO_REFERRER: Final[Header] = (b"referrer-policy", b"no-referrer")
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class PageFile(msgspec.Struct, frozen=True):
    """One file of the page, and its compressed form."""

    body: bytes
    packed: bytes
    media_type: bytes
    etag: bytes


def load_page(folder: Path = STATIC) -> dict[str, PageFile]:
    """By path; empty where the page was not built."""
    files = sorted(folder.iterdir()) if (folder / "index.html").is_file() else []
    page = {f"/{path.name}": _page_file(path) for path in files if path.suffix in MEDIA_TYPES}
    index = page.pop("/index.html", None)
    return page | dict.fromkeys(("/", DOCS_PATH), index) if index is not None else {}


def _page_file(path: Path) -> PageFile:
    body = path.read_bytes()
    etag = b'"%s"' % sha256(body).hexdigest()[:32].encode()
    return PageFile(body, gzip.compress(body, mtime=0), MEDIA_TYPES[path.suffix], etag)


def page_handlers(gateway: Gateway, files: dict[str, PageFile]) -> dict[str, Handler]:
    """A handler for each file; for `/` alone where there are none."""
    if not files:
        plain = PageFile(PLAIN.encode(), gzip.compress(PLAIN.encode(), mtime=0), MEDIA_TYPES[".html"], b'"plain"')
        files = {"/": plain}
    return {path: _handler(gateway, file) for path, file in files.items()}


def _handler(gateway: Gateway, file: PageFile) -> Handler:
    async def send_file(scope: Scope, _: Receive, send: Send) -> None:
        response = gateway.why_not_public(gateway.address_of(scope)) or page_response(scope, file)
        await (send_head if scope["method"] == "HEAD" else send_response)(send, response)
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})

    return send_file


def page_response(scope: Scope, file: PageFile) -> Response:
    """The file, compressed where the browser reads that; nothing where the browser has it already."""
    headers = dict(scope["headers"])
    shared = ((b"content-type", file.media_type), (b"etag", file.etag), (b"vary", b"accept-encoding"), CSP, NO_REFERRER)
    if headers.get(b"if-none-match") == file.etag:
        return Response(NOT_MODIFIED, b"", shared)
    if b"gzip" in headers.get(b"accept-encoding", b""):
        return Response(OK, file.packed, (*shared, (b"content-encoding", b"gzip")))
    return Response(OK, file.body, shared)


PLAIN: Final = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Holdfast</title></head>
<body>
<h1>Holdfast {escape(__version__)}</h1>
<p>This is a Holdfast node. It runs compute jobs on providers that no one controls, and keeps every job, piece of
evidence, result and blob until the next custodian provably holds it.</p>
<p>The page for people was not built into this installation: <code>make page</code> builds it.</p>
<ul>
<li><a href="/openrpc.json">/openrpc.json</a>: every method of <code>POST /rpc</code>, as OpenRPC</li>
<li><a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>: whether the node lives and answers</li>
<li><a href="/metrics">/metrics</a>: for Prometheus</li>
<li><code>GET /events</code>: what happens, as server-sent events</li>
<li><code>holdfast status</code> and <code>holdfast doctor</code> on the node's machine</li>
</ul>
</body></html>
"""
