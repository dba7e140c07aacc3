"""`PUT /v1/inputs/{digest}`: upload an input before its job (JOB-003), in parts and resumable; HEAD gives the offset.

The digest is `H("holdfast.input.v1", bytes)`. A part has `Content-Range: bytes FIRST-LAST/SIZE` and begins at the
offset; without that header the body is the whole input. `Upload-Offset` says how far the upload is; 201 that it is
complete. An operator says whose it is: `?caller=ACCOUNT`.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qs

import msgspec

from holdfast.api.http.gateway import BYTES_PER_TOKEN, Gateway
from holdfast.api.http.responses import CLOSE, OK, Header, Receive, Response, Scope, Send, send_response, token_of
from holdfast.api.http.rpc_endpoint import ClientLeft
from holdfast.api.node_access import PUT_INPUT, REQUESTERS, Principal, why_not_allowed, why_not_own
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import ACCOUNT_NAME, AccountId, Digest
from holdfast.core.job.input_ref import INPUT_BYTES_MAX
from holdfast.ports.inputs import Inputs

PREFIX: Final = "/v1/inputs/"
CREATED, ACCEPTED = 201, 202
PART_BYTES: Final = 1 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_RANGE: Final = re.compile(rb"bytes (\d{1,12})-(\d{1,12})/(\d{1,12})")
_OWNER_ONLY: Final = Refused("ENG-006", "inputs go to the owner of the journal", "send it to that node", "Unavailable")


class _Part(msgspec.Struct, frozen=True):
    first: int
    size: int | None
    """Of the whole input; None where the body is all of it."""
    last: int | None = None


class InputEndpoint:
    """Receives the bytes of inputs, and says how many it has."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except ClientLeft:
            return
        except (Unavailable, Corrupt) as fault:
            response = self._gateway.refuse(fault, CLOSE)
        await send_response(send, response)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        gateway = self._gateway
        principal = await gateway.admit(token_of(scope["headers"]), scope)
        if isinstance(principal, Response):
            return principal
        account = _account_of(principal, scope)
        name, inputs = scope["path"].removeprefix(PREFIX), gateway.access.inputs
        if isinstance(account, Refused):
            return gateway.refuse(account, CLOSE)
        if not _DIGEST.fullmatch(name):
            refusal = Refused("JOB-003", f"{name!r:.80} is not a digest", "64 hexadecimal digits", "InvalidParams")
            return gateway.refuse(refusal, CLOSE)
        if inputs is None or gateway.access.forward_to_owner is not None:
            return gateway.refuse(_OWNER_ONLY, CLOSE)
        digest = Digest(bytes.fromhex(name))
        if scope["method"] == "HEAD":
            return _progress(*await inputs.offset(account, digest))
        part = _part_of(scope["headers"])
        if not isinstance(part, Refused):
            outcome = await self._receive(inputs, account, digest, part, scope, receive, principal)
            if not isinstance(outcome, Refused):
                return outcome
            part = outcome
        offset, _ = await inputs.offset(account, digest)
        return gateway.refuse(part, (b"upload-offset", b"%d" % offset), CLOSE)

    async def _receive(
        self,
        inputs: Inputs,
        account: AccountId,
        digest: Digest,
        part: _Part,
        scope: Scope,
        receive: Receive,
        principal: Principal,
    ) -> Response | Refused:
        """Parts of the body are written as they come: a connection that breaks loses nothing that came before."""
        offset, is_whole = await inputs.offset(account, digest)
        if is_whole:
            return _progress(offset, is_whole)
        at, address, rest = part.first, self._gateway.address_of(scope), bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientLeft
            rest += message.get("body", b"")
            more = bool(message.get("more_body"))
            if part.last is not None and at + len(rest) > part.last + 1:
                return Refused("JOB-003", "the body is longer than its range", name="InvalidParams")
            if len(rest) >= PART_BYTES or (rest and not more):
                await self._gateway.pace(principal, address, len(rest) // BYTES_PER_TOKEN)
                if refusal := await inputs.write(account, digest, at, bytes(rest)):
                    return refusal
                at += len(rest)
                rest.clear()
        if part.last is not None and at != part.last + 1:
            return Refused("JOB-003", "the body is shorter than its range", name="InvalidParams")
        size = at if part.size is None else part.size
        if at < size:
            return _progress(at, is_whole=False)
        return await inputs.finish(account, digest, size) or _progress(size, is_whole=True)


def _account_of(principal: Principal, scope: Scope) -> AccountId | Refused:
    """Whose input it is: the account of the key, or the one that an operator names."""
    if refusal := why_not_allowed(principal, PUT_INPUT, REQUESTERS):
        return refusal
    named = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("caller")
    account = AccountId(named[0]) if named else principal.account
    if account is None or not ACCOUNT_NAME.fullmatch(account):
        return Refused("JOB-003", "caller: whose input is it?", "PUT …?caller=ACCOUNT", "InvalidParams")
    return why_not_own(principal, account) or account


def _part_of(headers: list[Header]) -> _Part | Refused:
    value = dict(headers).get(b"content-range")
    if value is None:
        return _Part(0, None)
    match = _RANGE.fullmatch(value.strip())
    first, last, size = (int(match[1]), int(match[2]), int(match[3])) if match is not None else (0, 0, 0)
    if not first <= last < size:
        return Refused("JOB-003", "content-range: not `bytes FIRST-LAST/SIZE`", name="InvalidParams")
    if size > INPUT_BYTES_MAX:
        return Refused("JOB-003", f"an input of {size} bytes, at most {INPUT_BYTES_MAX}", name="TooLarge")
    return _Part(first, size, last)


def _progress(offset: int, is_whole: bool) -> Response:
    headers = ((b"upload-offset", b"%d" % offset), (b"upload-complete", b"?1" if is_whole else b"?0"))
    return Response(CREATED if is_whole else ACCEPTED if offset else OK, b"", headers)
