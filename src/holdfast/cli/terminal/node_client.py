"""The node that a verb calls: the one of this folder over its socket, or any node over HTTP with a key (RPC-001)."""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from holdfast.adapters.keys.secret_file import read_secret
from holdfast.cli.terminal.options import TOKEN_VARIABLE
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.client import Client, NodeRefused, NodeUnreachable
from holdfast.core.base.errors import Unavailable

T = TypeVar("T")
TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 64 << 20


class NodeAddress(msgspec.Struct, frozen=True):
    """Where the node is, as the options say."""

    data: Path | None = None
    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


class NodeSession(Protocol):
    """A node that answers calls. It is a `Client` where the node is on this machine; that one also streams events."""

    async def call(self, method: str, **params: object) -> Any: ...


@asynccontextmanager
async def connect(address: NodeAddress) -> AsyncIterator[NodeSession]:
    if address.url is not None:
        yield _HttpNode(address)
        return
    async with Client(load_settings(None, {"data": address.data}).data, TIMEOUT_S) as node:
        yield node


def run_on_node(address: NodeAddress, work: Callable[[NodeSession], Awaitable[T]]) -> T:
    """Run `work` with a connection; an error becomes one sentence and its exit code."""

    async def connected() -> T:
        async with connect(address) as node:
            return await work(node)

    with report_errors():
        return asyncio.run(connected())
    raise AssertionError("report_errors() exits after an error")


def call_node(address: NodeAddress, method: str, **params: object) -> Any:
    """One call, one answer."""
    return run_on_node(address, lambda node: node.call(method, **params))


# ------------------------------------------------------------------------------------------------ over HTTP


class _HttpNode:
    """JSON-RPC over HTTP, one connection per call: enough for a command line."""

    def __init__(self, address: NodeAddress) -> None:
        self._url, self._port = _parse_url(address.url or "")
        self._token = _read_token(address)
        self._tls = _tls_context(address) if self._url.scheme == "https" else None

    async def call(self, method: str, **params: object) -> Any:
        return await asyncio.to_thread(self._call, method, params)

    def _call(self, method: str, params: dict[str, object]) -> Any:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request("POST", f"{self._url.path.rstrip('/')}/rpc", body, headers)
            raw = connection.getresponse().read(RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException, UnicodeError) as fault:  # the last: not a valid host name
            raise NodeUnreachable(f"no answer from {self._url.geturl()}: {fault}") from fault
        finally:
            connection.close()
        return _decode_response(raw)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname, self._port
        assert host is not None
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)


def _tls_context(address: NodeAddress) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca)
    except (OSError, ssl.SSLError) as fault:
        raise Unavailable("SEC-001", f"{address.ca}: {fault}", "pass the CA certificate, ca.pem") from fault


def _parse_url(url: str) -> tuple[SplitResult, int | None]:
    """Its parts and its port; reading the port is what detects a wrong one."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts, parts.port
    except ValueError:
        pass
    raise Unavailable("RPC-001", f"{url!r:.80} is not a URL", "write http://127.0.0.1:8451")


def _decode_response(raw: bytes) -> Any:
    try:
        message = msgspec.json.decode(raw)
        if "error" not in message:
            return message["result"]
        refusal = NodeRefused.from_error(message["error"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as fault:
        raise NodeUnreachable(f"this is not a node: it answers {raw[:60]!r}") from fault
    raise refusal


def _read_token(address: NodeAddress) -> str | None:
    """SEC-001: from a file or the environment, never from an option, which every user of the machine can read.

    A malformed token is not repeated in the message: it may contain the real one.
    """
    if address.token_file is not None:
        token, source = read_secret(address.token_file).decode("latin-1").strip(), str(address.token_file)
    else:
        token, source = os.environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise Unavailable("SEC-001", f"{source} does not contain a token", "a token begins with hf_ and is one word")
    return token or None
