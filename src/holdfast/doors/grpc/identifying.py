"""Who calls (SEC-001): a token in the metadata, a certificate from the handshake, and somebody who knows them."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from typing import Any, Final

import grpc
import msgspec

from holdfast.core.refusal import Refused
from holdfast.doors.grpc.handling import Body, Context, Handler, Interceptor, TurnedAway, put_around

_BEARER: Final = re.compile(r"[Bb]earer ([!-~]{1,1024})")
_caller: ContextVar[object] = ContextVar("caller")


class PeerCertificate(msgspec.Struct, frozen=True):
    """What a client has shown and the handshake has verified: signed by the client authority, valid now."""

    name: str
    """Its common name."""
    fingerprint: str
    """SHA-256 of the certificate, lower-case hex."""
    pem: bytes


Identify = Callable[[str | None, PeerCertificate | None], Awaitable[object]]
"""Token and certificate, each where there is one, to whoever it is, or Refused."""


def caller() -> Any:
    """Whoever makes the call that is being handled, as `Identify` has it."""
    return _caller.get()


class Identifying(Interceptor):
    """Asks who it is before a service hears of the call; services that are open to everybody are not asked for."""

    def __init__(self, identify: Identify, open_services: Collection[str]) -> None:
        self._identify = identify
        self._open = tuple(f"/{service}/" for service in open_services)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(self._open):
            return handler  # type: ignore[return-value]
        return put_around(handler, self._identified)

    def _identified(self, body: Body) -> Body:
        async def identified(request: Any, context: Context) -> Any:
            token = _token_in(context)
            who = token if isinstance(token, Refused) else await self._identify(token, certificate_of(context))
            if isinstance(who, Refused):
                raise TurnedAway(who)
            _caller.set(who)
            return await body(request, context)

        return identified


def _token_in(context: Context) -> str | Refused | None:
    shown = [value for key, value in context.invocation_metadata() or () if key == "authorization"]
    if not shown:
        return None
    found = _BEARER.fullmatch(shown[0]) if len(shown) == 1 and isinstance(shown[0], str) else None
    # What was shown is not repeated: it may be a secret in the wrong form.
    return (
        found[1] if found else Refused("SEC-001", "authorization: not a token", "send `Bearer <token>`", "Unauthorized")
    )


def certificate_of(context: Context) -> PeerCertificate | None:
    """What the client has shown in the handshake, None where it was not asked to."""
    shown = {key: b"".join(values) for key, values in context.auth_context().items()}
    pem = shown.get("x509_pem_cert")
    if not pem:
        return None
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    name = shown.get("x509_common_name", b"").decode("utf-8", "replace")
    return PeerCertificate(name, hashlib.sha256(der).hexdigest(), pem)
