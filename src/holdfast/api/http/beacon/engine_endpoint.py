"""`POST /engine`: `engine_getBlobsV1` of Ethereum's Engine API, for whoever holds an auditor's key (SRV-001)."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import msgspec

from holdfast.api.error_codes import error_reply
from holdfast.api.http.beacon.served_blobs import read_blob
from holdfast.api.http.gateway import UNAUTHORIZED, WWW_AUTHENTICATE, Gateway
from holdfast.api.http.responses import CLOSE, JSON, OK, Receive, Response, Scope, Send, send_response, token_of
from holdfast.api.http.rpc_endpoint import ClientLeft, read_body
from holdfast.api.node_access import GET_BLOBS, READERS, why_not_allowed
from holdfast.api.rpc import jsonrpc
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.blob.model import Blob
from holdfast.engine.queries.archive.blob_records import find_blobs

PATH: Final = "/engine"
HASHES_MAX: Final = 128
BODY_BYTES_MAX: Final = 64 << 10
TOO_LARGE: Final = -38004
"""The Engine API's own code of a request with too many hashes."""
_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")


class EngineEndpoint:
    """One method: blobs by their versioned hashes, each with its proof, null for those that are not here."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        response = await self._answer(scope, receive)
        if response is not None:
            await send_response(send, response)
            outcome = "ok" if response.status == OK else "refused"
            self._gateway.metrics.count_request(GET_BLOBS, outcome, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        gateway = self._gateway
        principal = await gateway.admit(token_of(scope["headers"]), scope)
        if isinstance(principal, Response):
            return principal
        if refusal := why_not_allowed(principal, GET_BLOBS, READERS):
            is_key_missing = error_reply(refusal).codes.http == UNAUTHORIZED
            return gateway.refuse(refusal, *((WWW_AUTHENTICATE,) if is_key_missing else ()))
        try:
            raw = await read_body(receive, BODY_BYTES_MAX)
        except ClientLeft:
            return None
        if raw is None:
            return gateway.refuse(
                Refused("SEC-001", f"a body of more than {BODY_BYTES_MAX} bytes", "", "TooLarge"), CLOSE
            )
        settings = gateway.settings
        message = jsonrpc.decode(raw, depth_max=settings.depth_max, batch_max=1, values_max=settings.values_max)
        if isinstance(message, Refused):
            return gateway.refuse(message)
        request = message.requests[0]
        if not isinstance(request, jsonrpc.RpcRequest):
            return gateway.refuse(Refused(request.rule, request.message, request.hint, request.name))
        answer = {"jsonrpc": "2.0", "id": request.id, **await self._call(request)}
        return Response(OK, msgspec.json.encode([answer] if message.is_batch else answer), (JSON,))

    async def _call(self, request: jsonrpc.RpcRequest) -> dict[str, Any]:
        if request.method != GET_BLOBS:
            return _error(-32601, f"no method {request.method!r:.60}: there is {GET_BLOBS}")
        hashes = request.params[0] if isinstance(request.params, list) and len(request.params) == 1 else None
        if not isinstance(hashes, list) or not all(isinstance(each, str) and _HASH.fullmatch(each) for each in hashes):
            return _error(-32602, "params: one list of versioned hashes, each 0x and 64 hexadecimal digits")
        if len(hashes) > HASHES_MAX:
            return _error(TOO_LARGE, f"{len(hashes)} hashes, at most {HASHES_MAX}")
        try:
            return {"result": await self._read_all([bytes.fromhex(each[2:]) for each in hashes])}
        except (Unavailable, Corrupt) as fault:
            return _error(error_reply(fault).codes.rpc, str(fault))

    async def _read_all(self, hashes: list[bytes]) -> list[dict[str, str] | None]:
        access = self._gateway.access
        by_hash: dict[bytes, list[Blob]] = {}
        for blob in await find_blobs(access.source, list(dict.fromkeys(hashes))):
            by_hash.setdefault(blob.versioned_hash, []).append(blob)
        found: list[dict[str, str] | None] = []
        for hash_ in hashes:
            raw, proof = None, b""
            for blob in by_hash.get(hash_, []):
                if raw is None:
                    raw, proof = await read_blob(access, blob), blob.proof
            access.served.blobs += raw is not None
            found.append(None if raw is None else {"blob": f"0x{raw.hex()}", "proof": f"0x{proof.hex()}"})
        return found


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
