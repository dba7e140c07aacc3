"""Whom a verb speaks to: the node of this folder over its socket, or any node over HTTP with a key (RPC-001)."""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec
import typer

from holdfast.adapters.keys.secretfile import read_secret
from holdfast.cli.speak import configured, told
from holdfast.client import Client, NodeRefused, NodeUnreachable
from holdfast.core.refusal import Unavailable

T = TypeVar("T")
PATIENCE_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 64 << 20
TOKEN: Final = "HOLDFAST_TOKEN"  # noqa: S105 - the variable's name

Data = Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")]
Url = Annotated[
    str | None,
    typer.Option("--url", help=f"Speak to this node over HTTP instead; the token is taken from {TOKEN}."),
]
TokenFile = Annotated[
    Path | None, typer.Option(help=f"A file that holds nothing but the token, instead of {TOKEN}; with --url.")
]
Ca = Annotated[Path | None, typer.Option(help="The authority that signed the node's certificate; with --url https://…")]
Json = Annotated[bool, typer.Option("--json", help="The whole answer as JSON.")]


class Place(msgspec.Struct, frozen=True):
    """Where the node is, as the flags say it."""

    data: Path | None = None
    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None


class Asked:
    """Somebody who answers `call`; where it is a node of this machine, `local` also streams events."""

    def __init__(self, call: Callable[..., Awaitable[Any]], local: Client | None = None) -> None:
        self.call, self.local = call, local


@asynccontextmanager
async def speaking_to(place: Place) -> AsyncIterator[Asked]:
    """The one to ask."""
    if place.url is not None:
        yield Asked(_Remote(place).call)
        return
    async with Client(configured(None, {"data": place.data}).data, PATIENCE_S) as node:
        yield Asked(node.call, node)


def run(place: Place, work: Callable[[Asked], Awaitable[T]]) -> T:
    """Ask, and tell what went wrong in one sentence with its exit code."""

    async def spoken() -> T:
        async with speaking_to(place) as node:
            return await work(node)

    with told():
        return asyncio.run(spoken())
    raise AssertionError("told() ends what failed")


def ask(place: Place, method: str, **params: object) -> Any:
    """One question, one answer."""
    return run(place, lambda node: node.call(method, **params))


# ------------------------------------------------------------------------------------------------ over HTTP


class _Remote:
    """JSON-RPC over HTTP, a connection a call: enough for what a person asks."""

    def __init__(self, place: Place) -> None:
        self._url, self._port = _address(place.url or "")
        self._token = _token(place)
        self._tls = self._context(place) if self._url.scheme == "https" else None

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
            raw = connection.getresponse().read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException, UnicodeError) as fault:  # the last: a name that no host can have
            raise NodeUnreachable(f"no answer from {self._url.geturl()}: {fault}") from fault
        finally:
            connection.close()
        return _answer(raw)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname, self._port
        assert host is not None
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=PATIENCE_S, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=PATIENCE_S)

    def _context(self, place: Place) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=place.ca)
        except (OSError, ssl.SSLError) as fault:
            raise Unavailable("SEC-001", f"{place.ca}: {fault}", "name the file of the authority, ca.pem") from fault


def _address(url: str) -> tuple[SplitResult, int | None]:
    """Its parts and its port; asking for the port is what finds a wrong one."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts, parts.port
    except ValueError:
        pass
    raise Unavailable("RPC-001", f"{url!r:.80} is no address", "write http://127.0.0.1:8451")


def _answer(raw: bytes) -> Any:
    try:
        message = msgspec.json.decode(raw)
        if "error" not in message:
            return message["result"]
        error, data = message["error"], message["error"].get("data") or {}
        code, says = error["code"], error["message"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as fault:
        raise NodeUnreachable(f"this is no node: it answers {raw[:60]!r}") from fault
    name, rule, hint = (data.get(key, "") for key in ("name", "rule", "hint"))
    raise NodeRefused(code, name, rule, says, hint, data.get("about"))


def _token(place: Place) -> str | None:
    """SEC-001: from a file or the environment, never from a flag, which everybody on the machine can read.

    What cannot be a token is not repeated: it may be one, with something around it.
    """
    if place.token_file is not None:
        found, where = read_secret(place.token_file).decode("latin-1").strip(), str(place.token_file)
    else:
        found, where = os.environ.get(TOKEN, "").strip(), TOKEN
    if found and not (found.isascii() and found.isprintable() and " " not in found):
        raise Unavailable("SEC-001", f"{where} holds no token", "a token begins with hf_ and is one word")
    return found or None
