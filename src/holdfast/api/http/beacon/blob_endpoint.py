"""`GET /eth/v1/beacon/blobs/{block_id}?versioned_hashes=`: the blobs of a block (SRV-001).

JSON as the Beacon API has it, or with `Accept: application/octet-stream` the bytes one after the other, with ranges.
Blobs are public: what is private in them is encrypted (BLB-003).
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from holdfast.api.error_codes import error_reply
from holdfast.api.http.beacon.served_blobs import blobs_of, find_block, gone, read_blob
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.gateway import UNAUTHORIZED, WWW_AUTHENTICATE, Gateway
from holdfast.api.http.responses import (
    JSON,
    NO_STORE,
    NOSNIFF,
    OK,
    Header,
    Receive,
    Response,
    Scope,
    Send,
    send_response,
    token_of,
)
from holdfast.api.http.v1.byte_ranges import PARTIAL_CONTENT, ByteAnswer, choose_bytes
from holdfast.api.node_access import READ_BLOBS, why_not_allowed
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import Blob
from holdfast.core.chain.model import Block
from holdfast.core.key.model import Role
from holdfast.engine.queries.chain import GetChainHead

PREFIX: Final = "/eth/v1/beacon/blobs/"
OCTETS: Final = b"application/octet-stream"
HASHES_MAX: Final = 4_096
_HASH: Final = re.compile(r"0x[0-9a-fA-F]{64}")


class WantedBlobs(msgspec.Struct, frozen=True):
    """What a request is about: a block, and those of its blobs that are asked for."""

    block: Block
    blobs: list[Blob]
    is_final: bool


class BlobEndpoint:
    """Sends blobs as fast as the client reads, one at a time in memory."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        began, outcome = time.perf_counter(), "ok"
        try:
            wanted = await self._find(scope)
            if isinstance(wanted, Response):
                outcome = "refused"
                await send_response(send, wanted)
            elif _prefers_bytes(scope["headers"]):
                await self._send_bytes(scope, wanted, send)
            else:
                await self._send_json(scope, wanted, send)
        finally:
            self._gateway.metrics.count_request(READ_BLOBS, outcome, time.perf_counter() - began)

    async def _find(self, scope: Scope) -> WantedBlobs | Response:
        gateway = self._gateway
        principal = await gateway.admit(token_of(scope["headers"]), scope)
        if isinstance(principal, Response):
            return principal
        is_welcome = principal.role is None and gateway.settings.public_reads
        if not is_welcome and (refusal := why_not_allowed(principal, READ_BLOBS, frozenset(Role))):
            return self._refuse(refusal)
        try:
            wanted = await self._look_up(scope)
            if not isinstance(wanted, Refused) and wanted.blobs and not await self._has_all(wanted):
                gateway.access.served.archived += len(wanted.blobs)
                wanted = gone(wanted.block, wanted.blobs)
        except (Unavailable, Corrupt) as fault:
            return self._refuse(fault)
        return self._refuse(wanted) if isinstance(wanted, Refused) else wanted

    async def _look_up(self, scope: Scope) -> WantedBlobs | Refused:
        hashes = _versioned_hashes(scope["query_string"])
        if isinstance(hashes, Refused):
            return hashes
        access = self._gateway.access
        block = await find_block(access, unquote(scope["path"].removeprefix(PREFIX)))
        if isinstance(block, Refused):
            return block
        head = await access.source.query_durable(GetChainHead())
        blobs = await blobs_of(access, block)
        chosen = blobs if hashes is None else [blob for blob in blobs if blob.versioned_hash in hashes]
        return WantedBlobs(block, chosen, block.height <= head.finalized)

    async def _has_all(self, wanted: WantedBlobs) -> bool:
        """Before anything is sent: a pack is whole or absent, so its first blob stands for the others."""
        return await read_blob(self._gateway.access, wanted.blobs[0]) is not None

    def _refuse(self, error: Refused | Exception) -> Response:
        """As clients of the Beacon API read errors, with the name, rule and details of ours."""
        reply = error_reply(error)
        status = reply.codes.http
        self._gateway.metrics.refusals[reply.name] += 1
        body = {"code": status, "message": str(reply), "name": reply.name, "rule": reply.rule, "hint": reply.hint}
        locators = [value for name, value in reply.details if name == "locator"]
        headers = (JSON, WWW_AUTHENTICATE) if status == UNAUTHORIZED else (JSON,)
        return Response(status, msgspec.json.encode(body | ({"locators": locators} if locators else {})), headers)

    # ------------------------------------------------------------------------------------ the two forms

    async def _send_json(self, scope: Scope, wanted: WantedBlobs, send: Send) -> None:
        is_final = b"true" if wanted.is_final else b"false"
        start = b'{"execution_optimistic":false,"finalized":%s,"data":[' % is_final
        count = len(wanted.blobs)
        length = len(start) + count * (2 * BLOB_BYTES + 4) + max(0, count - 1) + 2
        headers = [JSON, (b"content-length", b"%d" % length), NOSNIFF, NO_STORE]
        await send({"type": "http.response.start", "status": OK, "headers": headers})

        async def parts() -> AsyncIterator[bytes | None]:
            yield start
            for number, blob in enumerate(wanted.blobs):
                raw = await self._read(blob)
                comma = b"," if number else b""
                yield None if raw is None else b'%s"0x%s"' % (comma, raw.hex().encode())
            yield b"]}"

        await self._send_parts(scope, parts(), send)

    async def _send_bytes(self, scope: Scope, wanted: WantedBlobs, send: Send) -> None:
        size = len(wanted.blobs) * BLOB_BYTES
        etag = b'"%s"' % wanted.block.hash.hex().encode()
        answer = choose_bytes(scope["headers"], size, etag)
        headers: list[Header] = [(b"content-type", OCTETS), (b"content-length", b"%d" % answer.length)]
        headers += [*answer.headers(size, etag), (b"eth-consensus-version", b"deneb"), NOSNIFF, NO_STORE]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})

        async def parts() -> AsyncIterator[bytes | None]:
            for blob, start, end in _spans(wanted.blobs, answer):
                raw = await self._read(blob)
                yield None if raw is None else raw[start:end]

        await self._send_parts(scope, parts(), send)

    async def _read(self, blob: Blob) -> bytes | None:
        """None where it was pruned or damaged a moment ago: the length that was announced tells the client."""
        try:
            return await read_blob(self._gateway.access, blob)
        except (Unavailable, Corrupt):
            return None

    async def _send_parts(self, scope: Scope, parts: AsyncIterator[bytes | None], send: Send) -> None:
        connection: ClientConnection = scope["state"]["connection"]
        if scope["method"] != "HEAD":
            async for part in parts:
                if part is None or not await connection.can_send(self._gateway.settings.slow_ms / 1000):
                    self._gateway.metrics.disconnected["slow" if part is not None else "gone"] += 1
                    connection.abort()
                    return
                await send({"type": "http.response.body", "body": part, "more_body": True})
                self._gateway.access.served.blobs += len(part) >= BLOB_BYTES
        await send({"type": "http.response.body", "body": b""})


def _spans(blobs: list[Blob], answer: ByteAnswer) -> Iterator[tuple[Blob, int, int]]:
    """The part of each blob that a range covers."""
    if answer.status not in (OK, PARTIAL_CONTENT):
        return
    end = answer.start + answer.length
    for number, blob in enumerate(blobs):
        first = number * BLOB_BYTES
        start, stop = max(answer.start - first, 0), min(end - first, BLOB_BYTES)
        if start < stop:
            yield blob, start, stop


def _versioned_hashes(query: bytes) -> set[bytes] | Refused | None:
    """None where the request names none; several stand in one parameter with commas, or in several of this name."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query))
    except (ValueError, UnicodeDecodeError):
        return Refused("SRV-001", "the query cannot be read", "?versioned_hashes=0x…", "InvalidParams")
    unknown = [name for name, _ in pairs if name != "versioned_hashes"]
    names = [each for _, value in pairs for each in value.split(",")]
    if unknown or len(names) > HASHES_MAX or any(not _HASH.fullmatch(name) for name in names):
        wrong: Any = unknown[:1] or next((name for name in names if not _HASH.fullmatch(name)), f"{len(names)} hashes")
        return Refused("SRV-001", f"versioned_hashes: {wrong!r:.80}", "0x and 64 hexadecimal digits", "InvalidParams")
    return {bytes.fromhex(name[2:]) for name in names} if pairs else None


def _prefers_bytes(headers: list[Header]) -> bool:
    """The kind with the higher weight of the Accept header; JSON where nothing is said."""
    weights = {OCTETS: 0.0, b"application/json": 0.0}
    for name, value in headers:
        if name == b"accept":
            for kind in value.split(b","):
                media, _, rest = kind.strip().partition(b";")
                weight = re.search(rb"q=([0-9.]+)", rest)
                if media.strip().lower() in weights:
                    weights[media.strip().lower()] = float(weight[1]) if weight and weight[1] != b"." else 1.0
    return weights[OCTETS] > weights[b"application/json"]
