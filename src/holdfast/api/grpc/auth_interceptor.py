"""Authenticates calls (SEC-001): by a token in the metadata and a certificate from the TLS handshake."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from typing import Any

import grpc
import msgspec

from holdfast.api.authentication import bearer_token
from holdfast.api.grpc.call_wrapping import CallBody, CallRefused, Context, Handler, Interceptor, wrap_call
from holdfast.core.base.errors import Refused

_caller: ContextVar[object] = ContextVar("caller")


class PeerCertificate(msgspec.Struct, frozen=True):
    """A client's certificate, verified by the handshake: signed by the client CA and valid now."""

    name: str
    """Its common name."""
    fingerprint: str
    """SHA-256 of the certificate, lower-case hex."""
    pem: bytes


Authenticate = Callable[[str | None, PeerCertificate | None], Awaitable[object]]
"""From token and certificate, where there are any, to the principal, or Refused."""
OnProven = Callable[[str, str], None]
"""From a call's peer to the key that it has shown."""


def caller() -> Any:
    """The principal of the call that is being handled, as `Authenticate` returned it."""
    return _caller.get()


class AuthInterceptor(Interceptor):
    """Authenticates a call before its service runs; calls of open services are not authenticated."""

    def __init__(self, authenticate: Authenticate, open_services: Collection[str], on_proven: OnProven) -> None:
        self._authenticate, self._on_proven = authenticate, on_proven
        self._open = tuple(f"/{service}/" for service in open_services)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(self._open):
            return handler  # type: ignore[return-value]
        return wrap_call(handler, self._authenticated)

    def _authenticated(self, body: CallBody) -> CallBody:
        async def authenticated(request: Any, context: Context) -> Any:
            token = _bearer_token_of(context)
            if isinstance(token, Refused):
                raise CallRefused(token)
            certificate = certificate_of(context)
            principal = await self._authenticate(token, certificate)
            if isinstance(principal, Refused):
                raise CallRefused(principal)
            if certificate is not None:
                self._on_proven(context.peer(), certificate.fingerprint)
            elif token is not None:
                self._on_proven(context.peer(), hashlib.sha256(token.encode()).hexdigest())
            _caller.set(principal)
            return await body(request, context)

        return authenticated


def _bearer_token_of(context: Context) -> str | Refused | None:
    metadata = context.invocation_metadata() or ()
    return bearer_token([str(value) for key, value in metadata if key == "authorization"])


def certificate_of(context: Context) -> PeerCertificate | None:
    """The certificate that the client presented in the handshake; None where none was required."""
    presented = {key: b"".join(values) for key, values in context.auth_context().items()}
    pem = presented.get("x509_pem_cert")
    if not pem:
        return None
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    name = presented.get("x509_common_name", b"").decode("utf-8", "replace")
    return PeerCertificate(name, hashlib.sha256(der).hexdigest(), pem)
