"""`POST /v1/jobs:bulk`: many jobs in one request, one JSON object a line in both directions, in order.

A line has the parameters of `cap.enqueue`; its answer has the receipt, or the error of this line alone. The body is
read whole first, since most clients read nothing before they have sent everything. Then lines are admitted in groups,
as fast as the rate of the key allows and the client reads. A client that leaves has no more lines admitted: with
idempotency keys it sends the same body again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.api.error_codes import ErrorReply, error_reply
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.gateway import BYTES_PER_TOKEN, Gateway
from holdfast.api.http.responses import (
    CLOSE,
    NO_STORE,
    NOSNIFF,
    OK,
    UNSUPPORTED_MEDIA_TYPE,
    Header,
    Receive,
    Response,
    Scope,
    Send,
    send_response,
)
from holdfast.api.http.rpc_endpoint import ClientLeft, read_body
from holdfast.api.http.settings import HttpSettings
from holdfast.api.node_access import Principal, why_not_allowed
from holdfast.api.rpc import jsonrpc
from holdfast.core.base.errors import Refused

PATH: Final = "/v1/jobs:bulk"
ENQUEUE: Final = "cap.enqueue"
LINES_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 32 << 20
GROUP_LINES: Final = 100
"""Lines that are admitted together, before their answers are sent …"""
GROUP_BYTES: Final = 256 << 10
"""… and their bytes, which are parsed at once."""
RUNNING_MAX: Final = 4
"""Requests that are read and admitted at a time; others are refused. Their bodies are in memory."""
NDJSON: Final = b"application/x-ndjson"
HEADERS: Final[list[Header]] = [(b"content-type", NDJSON), NOSNIFF, NO_STORE]


class BulkEndpoint:
    """Reads the lines, admits them in order, and answers each."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal = await self._admit(scope)
        if isinstance(principal, Response):
            await send_response(send, principal)
            return
        if self._running >= RUNNING_MAX:
            refusal = Refused("SEC-001", f"{RUNNING_MAX} such requests are running", "try again later", "RateLimited")
            await send_response(send, self._gateway.refuse(refusal, (b"retry-after", b"1"), CLOSE))
            return
        self._running += 1
        try:
            await self._serve(scope, receive, send, principal)
        finally:
            self._running -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        try:
            lines = _lines(await read_body(receive, BODY_BYTES_MAX))
        except ClientLeft:
            return
        if isinstance(lines, Refused):
            await send_response(send, self._gateway.refuse(lines, CLOSE))
            return
        await send({"type": "http.response.start", "status": OK, "headers": HEADERS})
        await self._answer_lines(scope, lines, principal, send)

    async def _admit(self, scope: Scope) -> Principal | Response:
        gateway, headers = self._gateway, dict(scope["headers"])
        principal = await gateway.admit(gateway.token_of(scope), scope)
        if isinstance(principal, Response):
            return principal
        if refusal := why_not_allowed(principal, ENQUEUE, gateway.methods[ENQUEUE].roles):
            return gateway.refuse(refusal)
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != NDJSON or headers.get(b"content-encoding", b"identity").lower() != b"identity":
            hint = "send `Content-Type: application/x-ndjson`, uncompressed"
            refusal = Refused("RPC-001", "one JSON object a line is expected", hint, "InvalidRequest")
            return gateway.refuse(refusal, status=UNSUPPORTED_MEDIA_TYPE)
        return principal

    async def _answer_lines(self, scope: Scope, lines: list[bytes], principal: Principal, send: Send) -> None:
        connection: ClientConnection = scope["state"]["connection"]
        gateway = self._gateway
        for first, group in _groups(lines):
            cost = len(group) + sum(map(len, group)) // BYTES_PER_TOKEN
            await gateway.pace(principal, gateway.address_of(scope), cost)
            answers = await self._enqueue(first, group, principal)
            if not await connection.can_send(gateway.settings.slow_ms / 1000):
                gateway.metrics.disconnected["slow"] += 1
                connection.abort()
                return
            await send({"type": "http.response.body", "body": answers, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _enqueue(self, first: int, group: Sequence[bytes], principal: Principal) -> bytes:
        """Submitted together and in their order; answered in it, too."""
        gateway, began = self._gateway, time.perf_counter()
        requests = [_request(number, line, gateway.settings) for number, line in enumerate(group, first)]
        message = jsonrpc.RpcMessage(requests, is_batch=True)
        outcomes = await jsonrpc.handle(gateway.access, message, principal, gateway.methods)
        seconds = time.perf_counter() - began
        for outcome in outcomes:
            gateway.metrics.count_request(ENQUEUE, "ok" if outcome.error is None else outcome.error.name, seconds)
        return b"".join(_encode(number, outcome) for number, outcome in enumerate(outcomes, first))


def _lines(body: bytes | None) -> list[bytes] | Refused:
    if body is None:
        hint = f"at most {BODY_BYTES_MAX} bytes and {LINES_MAX} lines: send several"
        return Refused("SEC-001", f"a body of more than {BODY_BYTES_MAX} bytes", hint, "TooLarge")
    body = body.removesuffix(b"\n")
    if (count := body.count(b"\n") + 1) > LINES_MAX:  # before they are split: empty lines are millions
        return Refused("SEC-001", f"{count} lines, at most {LINES_MAX}", "send several", "TooLarge")
    return body.split(b"\n") if body else []


def _groups(lines: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The number of each group's first line, and its lines: as many as do not make others wait."""
    group, size, first = list[bytes](), 0, 1
    for number, line in enumerate(lines, start=1):
        if group and (len(group) >= GROUP_LINES or size + len(line) > GROUP_BYTES):
            yield first, group
            group, size, first = [], 0, number
        group.append(line)
        size += len(line)
    if group:
        yield first, group


def _request(number: int, line: bytes, settings: HttpSettings) -> jsonrpc.RpcRequest | ErrorReply:
    """A line is bounded as a message is; what is wrong with it is an error of this line alone."""
    if len(line) > settings.body_bytes_max:
        return ErrorReply("TooLarge", "SEC-001", f"a line of more than {settings.body_bytes_max} bytes")
    params = jsonrpc.decode_json(line, settings.depth_max, settings.values_max)
    if isinstance(params, Refused):
        return error_reply(params)
    if isinstance(params, ErrorReply):
        return params
    return jsonrpc.RpcRequest(ENQUEUE, params, number, is_notification=False)


def _encode(number: int, outcome: jsonrpc.RpcOutcome) -> bytes:
    answer: dict[str, Any] = {"line": number}
    if outcome.error is None:
        answer["result"] = outcome.result
    else:
        answer["error"] = jsonrpc.error_json(outcome.error)
    return msgspec.json.encode(answer) + b"\n"
