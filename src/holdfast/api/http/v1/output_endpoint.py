"""`GET /v1/outputs/{task_id}`: the bytes of an output (RES-009), with ranges, in every kind of network."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

from holdfast.api.error_codes import error_reply
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.gateway import UNAUTHORIZED, WWW_AUTHENTICATE, Gateway
from holdfast.api.http.responses import (
    NO_STORE,
    NOSNIFF,
    Header,
    Receive,
    Response,
    Scope,
    Send,
    send_response,
)
from holdfast.api.http.v1.byte_ranges import OK, PARTIAL_CONTENT, ByteAnswer, choose_bytes
from holdfast.api.http.v1.open_output import open_output
from holdfast.api.node_access import READ_OUTPUT, Principal, why_not_allowed
from holdfast.api.rpc.methods.results import readable_output
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import TaskId
from holdfast.core.key.model import Role
from holdfast.core.result.model import Result
from holdfast.ports import OutputReader

PREFIX: Final = "/v1/outputs/"
PART_BYTES: Final = 256 << 10
HASHING_MAX: Final = 2
"""Outputs that are hashed at a time before they are sent: the disk and the threads are shared with the journal."""
NOT_TRUSTED: Final[tuple[Header, ...]] = (
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"content-disposition", b"attachment"),
)
"""The bytes and their media type are a provider's: they must not run as a page of this node."""
OCTETS: Final = "application/octet-stream"
_TASK_ID: Final = re.compile(r"[0-9a-f]{64}")
_ANY_KEY: Final = frozenset(Role)


class OutputEndpoint:
    """Sends one output, or a part of it, as fast as the client reads."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._hashing = asyncio.Semaphore(HASHING_MAX)

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        began, outcome = time.perf_counter(), "ok"
        self._gateway.metrics.running += 1
        try:
            found = await self._find(scope)
            if isinstance(found, Response):
                outcome = "refused"
                await send_response(send, found)
            else:
                await self._send(scope, *found, send)
        finally:
            self._gateway.metrics.running -= 1
            self._gateway.metrics.count_request(READ_OUTPUT, outcome, time.perf_counter() - began)

    async def _find(self, scope: Scope) -> tuple[Result, OutputReader] | Response:
        gateway = self._gateway
        principal = await gateway.admit(gateway.token_of(scope), scope)
        if isinstance(principal, Response):
            return principal
        try:
            found = await self._open(scope["path"].removeprefix(PREFIX), principal)
        except (Unavailable, Corrupt) as fault:
            return gateway.refuse(fault)
        if not isinstance(found, Refused):
            return found
        is_key_missing = error_reply(found).codes.http == UNAUTHORIZED
        return gateway.refuse(found, *((WWW_AUTHENTICATE,) if is_key_missing else ()))

    async def _open(self, name: str, principal: Principal) -> tuple[Result, OutputReader] | Refused:
        gateway = self._gateway
        is_guest_welcome = principal.role is None and gateway.settings.public_reads
        if not is_guest_welcome and (refusal := why_not_allowed(principal, READ_OUTPUT, _ANY_KEY)):
            return refusal
        if not _TASK_ID.fullmatch(name):
            return Refused("RES-009", f"{name!r:.80} is not a task id", "64 hexadecimal digits", "InvalidParams")
        result = await readable_output(gateway.access, principal, TaskId(bytes.fromhex(name)))
        if isinstance(result, Refused):
            return result
        async with self._hashing:
            output = await open_output(gateway.access, principal, result)
        return output if isinstance(output, Refused) else (result, output)

    async def _send(self, scope: Scope, result: Result, output: OutputReader, send: Send) -> None:
        try:
            etag = b'"%s"' % result.result_digest.hex().encode()
            answer = choose_bytes(scope["headers"], output.size, etag)
            await send(
                {
                    "type": "http.response.start",
                    "status": answer.status,
                    "headers": [
                        (b"content-type", (result.mime_type or OCTETS).encode()),
                        (b"content-length", b"%d" % answer.length),
                        *answer.headers(output.size, etag),
                        *NOT_TRUSTED,
                        NOSNIFF,
                        NO_STORE,
                    ],
                }
            )
            await self._send_parts(scope, output, answer, send)
        finally:
            await output.close()

    async def _send_parts(self, scope: Scope, output: OutputReader, answer: ByteAnswer, send: Send) -> None:
        connection: ClientConnection = scope["state"]["connection"]
        offset, end = answer.start, answer.start + answer.length
        if scope["method"] == "HEAD" or answer.status not in (OK, PARTIAL_CONTENT):
            offset = end
        while offset < end:
            if not await connection.can_send(self._gateway.settings.slow_ms / 1000):
                self._gateway.metrics.disconnected["slow"] += 1
                connection.abort()
                return
            part = await output.read(offset, min(PART_BYTES, end - offset))
            if not part:  # the file was cut short while it was sent: the length that was announced tells the client
                connection.abort()
                return
            await send({"type": "http.response.body", "body": part, "more_body": True})
            offset += len(part)
        await send({"type": "http.response.body", "body": b""})
