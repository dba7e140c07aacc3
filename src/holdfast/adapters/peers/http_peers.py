"""Nodes over HTTP as peers of a follower (SYN-001): it asks, and is told nothing unasked.

Every answer is bounded in size and time, and nothing in it is believed here.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from holdfast.core.base.canonical import decode as decode_canonical
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.wire.packages import PACKAGE_BYTES_MAX

TIMEOUT_S: Final = 30.0
PATH: Final = "/v1/packages"
NOTICES_BYTES_MAX: Final = 64 << 20
TRIES: Final = 50
PAUSE_S: Final = 0.2
_OK, _NOT_FOUND, _TOO_MANY = 200, 404, 429
_HINTS: Final = {401: "show a key: HOLDFAST_TOKEN or --token-file", 403: "the key must be an auditor's"}


class HttpPeers:
    """The nodes of these addresses, by their addresses; one key is shown to all of them."""

    def __init__(self, urls: Sequence[str], token: str | None, ca: Path | None = None) -> None:
        self._urls, self._ca = [url.rstrip("/") for url in urls], ca
        self._headers: Mapping[str, str] = {} if token is None else {"authorization": f"Bearer {token}"}

    def names(self) -> list[str]:
        return list(self._urls)

    async def final_height(self, peer: str) -> Height:
        raw = await self._get(peer, "head", 20)
        if raw is None or not raw.isdigit():
            raise Unavailable("SYN-001", f"{peer} does not say how far it is", "is it a node of Holdfast?")
        return Height(int(raw))

    async def package(self, peer: str, height: Height) -> bytes | None:
        return await self._get(peer, f"{height}", PACKAGE_BYTES_MAX)

    async def blob(self, peer: str, height: Height, number: int) -> bytes | None:
        return await self._get(peer, f"{height}/blobs/{number}", BLOB_BYTES)

    async def notices(self, peer: str, height: Height) -> list[bytes]:
        raw = await self._get(peer, f"{height}/notices", NOTICES_BYTES_MAX)
        try:
            return [] if raw is None else msgspec.convert(decode_canonical(raw), list[bytes], builtin_types=(bytes,))
        except ValueError as fault:
            raise Unavailable("SYN-001", f"{peer} sent notices that cannot be read: {fault}") from fault

    async def broadcast(self, message: bytes) -> None:
        """A follower that only asks has no peer to tell."""

    async def _get(self, peer: str, path: str, bytes_max: int) -> bytes | None:
        for _ in range(TRIES):
            try:
                status, raw = await asyncio.to_thread(self._send, peer, f"{PATH}/{path}", bytes_max)
            except (OSError, http.client.HTTPException) as fault:
                raise Unavailable("SYN-001", f"{peer}: {fault or type(fault).__name__}", "it is asked again") from fault
            if status != _TOO_MANY:
                break
            await asyncio.sleep(PAUSE_S)  # the node limits the rate of a key
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            raise Unavailable("SYN-001", f"{peer}: status {status}", _HINTS.get(status, "it is asked again"))
        if len(raw) > bytes_max:
            raise Unavailable("SYN-001", f"{peer}: an answer of more than {bytes_max} bytes")
        return raw

    def _send(self, peer: str, path: str, bytes_max: int) -> tuple[int, bytes]:
        parts = urlsplit(peer)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            tls = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
            connection = http.client.HTTPSConnection(parts.netloc, timeout=TIMEOUT_S, context=tls)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
        try:
            connection.request("GET", parts.path + path, headers=dict(self._headers))
            answer = connection.getresponse()
            return answer.status, answer.read(bytes_max + 1)
        finally:
            connection.close()
