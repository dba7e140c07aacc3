"""`GET /v1/packages/…`: final blocks as followers sync them (SYN-001); for operators and auditors.

    /v1/packages/head                       the last final height, as text
    /v1/packages/{height}                   a package
    /v1/packages/{height}/notices           the notices about its blobs, as a canonical list
    /v1/packages/{height}/blobs/{index}     the bytes of a blob, while they are here

A block names accounts and amounts, so it is not for everybody. Blobs of private jobs are ciphertext (BLB-003).
"""

from __future__ import annotations

import re
import time
from typing import Final

from holdfast.api.error_codes import error_reply
from holdfast.api.http.gateway import UNAUTHORIZED, WWW_AUTHENTICATE, Gateway
from holdfast.api.http.responses import OK, Header, Receive, Response, Scope, Send, send_response, token_of
from holdfast.api.node_access import READ_PACKAGES, READERS, PackageService, why_not_allowed
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import Height

PREFIX: Final = "/v1/packages/"
OCTETS: Final[Header] = (b"content-type", b"application/octet-stream")
_PATH: Final = re.compile(
    r"(?:(?P<head>head)|(?P<height>[0-9]{1,18})(?:/(?P<notices>notices)|/blobs/(?P<index>[0-9]{1,4}))?)"
)
_NO_OWNER: Final = Refused("SYN-001", "this node does not own the journal", "ask its owner", "Unavailable")


class PackageEndpoint:
    """Whole answers: a package is made in memory, one at a time for each request."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        began = time.perf_counter()
        self._gateway.metrics.running += 1
        try:
            await send_response(send, await self._answer(scope))
        finally:
            self._gateway.metrics.running -= 1
            self._gateway.metrics.count_request(READ_PACKAGES, "ok", time.perf_counter() - began)

    async def _answer(self, scope: Scope) -> Response:
        gateway = self._gateway
        principal = await gateway.admit(token_of(scope["headers"]), scope)
        if isinstance(principal, Response):
            return principal
        found: bytes | Refused | None = why_not_allowed(principal, READ_PACKAGES, READERS)
        try:
            service = gateway.access.packages
            if found is None:
                found = (
                    _NO_OWNER if service is None else await read_package(service, scope["path"].removeprefix(PREFIX))
                )
        except (Unavailable, Corrupt) as fault:
            return gateway.refuse(fault)
        if not isinstance(found, Refused):
            return Response(OK, found, (OCTETS,))
        is_key_missing = error_reply(found).codes.http == UNAUTHORIZED
        return gateway.refuse(found, *((WWW_AUTHENTICATE,) if is_key_missing else ()))


async def read_package(service: PackageService, path: str) -> bytes | Refused:
    """What a path below the prefix names."""
    match = _PATH.fullmatch(path)
    if match is None:
        return Refused("SYN-001", f"{path!r:.80} names no block", "/v1/packages/HEIGHT", "InvalidParams")
    if match["head"]:
        return b"%d" % await service.final_height()
    height = Height(int(match["height"]))
    if match["notices"]:
        return canonical(list(await service.notices(height)))
    index = match["index"]
    found = await service.package(height) if index is None else await service.blob(height, int(index))
    what = f"block {height}" if index is None else f"blob {index} of block {height}"
    return found if found is not None else Refused("SYN-001", f"{what} is not here", name="NotFound")
