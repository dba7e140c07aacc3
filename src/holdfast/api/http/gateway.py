"""What all ways into the HTTP server share: authenticate, limit, decode once, handle, count, pick the status."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.api.http.responses import JSON, NO_CONTENT, OK, Header, Response, refusal_response
from holdfast.api.http.settings import HttpSettings
from holdfast.api.node_access import ANONYMOUS, NodeAccess, Principal, RpcMethod
from holdfast.api.rate_limit import TokenBuckets
from holdfast.api.rpc import jsonrpc, openrpc
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.key.model import Role
from holdfast.ports import Clock

HTTP_ERRORS: Final = frozenset(
    {"ParseError", "InvalidRequest", "Unauthorized", "KeyExpired", "KeyRevoked", "Forbidden", "Unavailable"}
)
"""Errors of a single request that HTTP has a status for; all others are sent with 200, as is custom."""
ALWAYS_PUBLIC: Final = frozenset({openrpc.DISCOVER, "node.getStatus", "auth.setToken"})
"""Methods that need no key even where reads are not public."""
UNAUTHORIZED: Final = 401
WWW_AUTHENTICATE: Final[Header] = (b"www-authenticate", b"Bearer")
BATCH, UNREADABLE, UNKNOWN, MIXED = "(batch)", "(unreadable)", "(unknown)", "mixed"


class Gateway:
    """One for all connections of an HTTP server."""

    def __init__(
        self,
        access: NodeAccess,
        clock: Clock,
        settings: HttpSettings,
        methods: Mapping[str, RpcMethod],
        metrics: HttpMetrics,
    ) -> None:
        self.access, self.settings, self.metrics = access, settings, metrics
        self.authenticator = TokenAuthenticator(access, clock)
        self.methods = openrpc.with_discovery(methods if settings.public_reads else _for_keys_only(methods))
        self._of_key = TokenBuckets(clock, settings.key_per_s, settings.key_burst)
        self._of_address = TokenBuckets(clock, settings.address_per_s, settings.address_burst)

    async def admit(self, token: str | Refused | None, address: str) -> Principal | Response:
        """Who sends a request, or the refusal. Either way it costs a token of the sender's bucket."""
        try:
            principal = token if isinstance(token, Refused) else await self.authenticator.authenticate(token)
        except (Unavailable, Corrupt) as fault:
            return self.refuse(fault)
        if wait_ms := self._wait_ms(principal, address, 1):
            return self._rate_limited(wait_ms)
        return self.refuse(principal, WWW_AUTHENTICATE) if isinstance(principal, Refused) else principal

    def why_not_public(self, address: str) -> Response | None:
        """The limit of public pages: the same rate as for requests, from a bucket of their own."""
        wait_ms = self._of_address.take(f"{address} looks")
        return self._rate_limited(wait_ms) if wait_ms else None

    async def answer(
        self, raw: bytes, principal: Principal, address: str, methods: Mapping[str, RpcMethod] | None = None
    ) -> Response:
        """The answer to a message of an admitted principal."""
        message = jsonrpc.decode(raw, depth_max=self.settings.depth_max, batch_max=self.settings.batch_max)
        if isinstance(message, Refused):
            return self.refuse(message)
        size = len(message.requests)
        if size > 1 and (wait_ms := self._wait_ms(principal, address, size - 1)):
            return self._rate_limited(wait_ms)
        began = time.perf_counter()
        self.metrics.running += 1
        try:
            outcomes = await jsonrpc.handle(self.access, message, principal, methods or self.methods)
        finally:
            self.metrics.running -= 1
        self._count(message, outcomes, time.perf_counter() - began)
        body = jsonrpc.encode(message, outcomes)
        if body is None:
            return Response(NO_CONTENT, b"", ())
        status = OK if message.is_batch else _http_status(outcomes[0])
        return Response(status, body, (JSON, WWW_AUTHENTICATE) if status == UNAUTHORIZED else (JSON,))

    def refuse(self, error: Refused | Exception, *headers: Header, status: int | None = None) -> Response:
        """A refusal of the server itself, counted."""
        self.metrics.refusals[error.name if isinstance(error, Refused) else type(error).__name__] += 1
        return refusal_response(error, *headers, status=status)

    def bytes_max(self, principal: Principal) -> int:
        return self.settings.anonymous_bytes_max if principal is ANONYMOUS else self.settings.body_bytes_max

    def _wait_ms(self, principal: Principal | Refused, address: str, tokens: int) -> int:
        if isinstance(principal, Refused) or principal is ANONYMOUS:
            return self._of_address.take(address, tokens)
        return self._of_key.take(principal.name, tokens)

    def _rate_limited(self, wait_ms: int) -> Response:
        refusal = Refused("SEC-001", "too many requests", f"try again in {wait_ms} ms", "RateLimited")
        return self.refuse(refusal, (b"retry-after", b"%d" % -(-wait_ms // 1000)))

    def _count(self, message: jsonrpc.RpcMessage, outcomes: Sequence[jsonrpc.RpcOutcome], seconds: float) -> None:
        if message.is_batch:
            method, outcome = BATCH, "ok" if all(each.error is None for each in outcomes) else MIXED
        else:
            method, error = outcomes[0].method, outcomes[0].error
            outcome = "ok" if error is None else error.name
            if method not in self.methods:  # names that clients make up would fill the memory
                method = UNKNOWN if method else UNREADABLE
        self.metrics.count_request(method, outcome, seconds)


def _http_status(outcome: jsonrpc.RpcOutcome) -> int:
    error = outcome.error
    return error.codes.http if error is not None and error.name in HTTP_ERRORS else OK


def _for_keys_only(methods: Mapping[str, RpcMethod]) -> dict[str, RpcMethod]:
    """Methods that are open to everybody become methods that every key may call."""
    return {
        name: method
        if method.roles or name in ALWAYS_PUBLIC
        else msgspec.structs.replace(method, roles=frozenset(Role))
        for name, method in methods.items()
    }
