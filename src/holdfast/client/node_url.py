"""Where a client finds its node: a URL with a token, or the socket in the node's folder."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast.client.sockets import HTTP_SOCKET_NAME
from holdfast.core.base.errors import Unavailable

URL_VARIABLE: Final = "HOLDFAST_URL"
TOKEN_VARIABLE: Final = "HOLDFAST_TOKEN"  # noqa: S105 - the variable's name
LOCAL_URL: Final = "http://localhost"
DATA_FOLDER: Final = "holdfast-data"


class NodeUrl(msgspec.Struct, frozen=True):
    """Base of all paths, the socket where it is a local one, and what is sent with every request."""

    base: str
    socket: str | None = None
    token: str | None = None
    ca: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """What the node's certificate is checked with."""
        if not self.base.startswith("https:"):
            return True
        try:
            return ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as fault:
            raise Unavailable("SEC-001", f"{self.ca}: {fault}", "pass the CA certificate, ca.pem") from fault

    def __str__(self) -> str:
        return self.socket or self.base


def find_node(
    where: str | Path | None, token: str | None, ca: Path | None, environ: Mapping[str, str] | None = None
) -> NodeUrl:
    """A URL, or a folder; else what the environment says; else the folder `holdfast-data` here.

    A token of the environment goes to the node of the environment and to nodes that are named without one.
    """
    known = os.environ if environ is None else environ
    if where is None:
        where = known.get(URL_VARIABLE) or Path(DATA_FOLDER)
    if isinstance(where, Path):
        socket = where if where.suffix == ".sock" else where / HTTP_SOCKET_NAME
        return NodeUrl(LOCAL_URL, str(socket))
    given = checked_token(token, "`token`") or checked_token(known.get(TOKEN_VARIABLE), TOKEN_VARIABLE)
    return NodeUrl(_parse_url(where), None, given, ca)


def _parse_url(url: str) -> str:
    """Without the slash at its end; reading the port is what detects a wrong one."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0):
            return url.rstrip("/")
    except ValueError:
        pass
    raise Unavailable("RPC-001", f"{url!r:.80} is not a URL", "write http://127.0.0.1:8451, or pass a Path")


def checked_token(token: str | None, source: str) -> str | None:
    """A malformed token is not repeated in the message: it may contain the real one."""
    token = (token or "").strip()
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise Unavailable("SEC-001", f"{source} does not contain a token", "a token begins with hf_ and is one word")
    return token or None
