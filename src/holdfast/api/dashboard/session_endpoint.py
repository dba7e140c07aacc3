"""`/v1/session`: a person signs in to the page with a token, and out again (SEC-001)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.http.gateway import Gateway
from holdfast.api.http.page_sessions import SESSION_MS, session_cookie, why_not_same_origin
from holdfast.api.http.responses import BAD_REQUEST, JSON, OK, Receive, Response, Scope, Send, send_response
from holdfast.api.http.rpc_endpoint import ClientLeft, read_body
from holdfast.api.node_access import Principal
from holdfast.core.base.errors import Refused
from holdfast.system.strict_json import NOT_JSON, decode_json

PATH: Final = "/v1/session"
BODY_BYTES_MAX: Final = 4_096


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a sign-in."""

    token: str


class SessionInfo(msgspec.Struct, frozen=True):
    """Whose session it is."""

    name: str
    role: str | None
    account: str | None
    until_ms: int | None = None
    is_cookie: bool = False
    """Whether it can be ended here: it is a session of the page, not a token or a socket."""


class SessionEndpoint:
    """Sign in, sign out, and who is signed in."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway, self._sessions = gateway, gateway.sessions

    async def sign_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, BODY_BYTES_MAX)
        except ClientLeft:
            return
        await send_response(send, await self._begin(scope, body))

    async def _begin(self, scope: Scope, body: bytes | None) -> Response:
        gateway = self._gateway
        if refusal := why_not_same_origin(scope):
            return gateway.refuse(refusal)
        try:
            token = decode_json(body or b"", SignIn).token
        except NOT_JSON:
            refusal = Refused("SEC-001", 'a sign-in is {"token": …}', "send it as JSON", "InvalidRequest")
            return gateway.refuse(refusal, status=BAD_REQUEST)
        principal = await gateway.admit(token, scope)
        if isinstance(principal, Response):
            return principal
        name, until_ms = self._sessions.begin(token)
        cookie = session_cookie(name, SESSION_MS // 1000, is_secure=scope["scheme"] == "https")
        return Response(OK, msgspec.json.encode(_info(principal, until_ms, is_cookie=True)), (JSON, cookie))

    async def show(self, scope: Scope, _: Receive, send: Send) -> None:
        principal = await self._gateway.admit(self._sessions.token_of(scope), scope)
        if isinstance(principal, Principal):
            await send_response(
                send, Response(OK, msgspec.json.encode(_info(principal, is_cookie=self._sessions.has(scope))))
            )
        else:
            await send_response(send, principal)

    async def sign_out(self, scope: Scope, _: Receive, send: Send) -> None:
        self._sessions.end(scope)
        cookie = session_cookie("", 0, is_secure=scope["scheme"] == "https")
        await send_response(send, Response(OK, b"{}", (JSON, cookie)))


def _info(principal: Principal, until_ms: int | None = None, *, is_cookie: bool) -> SessionInfo:
    return SessionInfo(principal.name, principal.role, principal.account, until_ms, is_cookie)
