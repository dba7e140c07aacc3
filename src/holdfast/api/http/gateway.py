"""What all ways into the HTTP server share: authenticate, limit, decode once, handle, count, pick the status."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.api.http.page_sessions import PageSessions
from holdfast.api.http.responses import JSON, NO_CONTENT, OK, Header, Response, Scope, address_of, refusal_response
from holdfast.api.http.settings import HttpSettings, limits_of
from holdfast.api.limits.addresses import client_of, forwarded_address, parse_networks
from holdfast.api.limits.places import ConnectionPlace
from holdfast.api.limits.rate_limit import TokenBuckets
from holdfast.api.node_access import ANONYMOUS, NodeAccess, Principal, RpcMethod, for_keys_only
from holdfast.api.rpc import jsonrpc, openrpc
from holdfast.api.rpc.paging import cost_of_page
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.ports import Clock

HTTP_ERRORS: Final = frozenset(
    {"ParseError", "InvalidRequest", "Unauthorized", "KeyExpired", "KeyRevoked", "Forbidden", "Unavailable"}
)
"""Errors of a single request that HTTP has a status for; all others are sent with 200, as is custom."""
BYTES_PER_TOKEN: Final = 64 << 10
"""A long message costs as many requests as it takes time to read."""
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
        guest: Principal = ANONYMOUS,
    ) -> None:
        self.access, self.settings, self.metrics = access, settings, metrics
        self._clock = clock
        self.authenticator = TokenAuthenticator(access, clock, guest)
        self.limits = limits_of(settings)
        open_methods = methods if settings.public_reads else for_keys_only(methods)
        self.methods = openrpc.with_discovery(open_methods, self.limits)
        self.sessions = PageSessions(clock)
        self._proxies = parse_networks(settings.trusted_proxies)
        self._of_key = TokenBuckets(clock, settings.key_per_s, settings.key_burst)
        self._of_address = TokenBuckets(clock, settings.address_per_s, settings.address_burst)

    def address_of(self, scope: Scope) -> str:
        """The client's address; behind a trusted proxy, the one that the proxy names."""
        peer = address_of(scope)
        if not self._proxies:
            return peer
        names = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return forwarded_address(peer, ",".join(names), self._proxies)

    def token_of(self, scope: Scope) -> str | Refused | None:
        """The token of a request: its own, or that of the page's session."""
        return self.sessions.token_of(scope)

    async def admit(self, token: str | Refused | None, scope: Scope) -> Principal | Response:
        """Who sends a request, or the refusal. Either way it costs a token of the sender's bucket.

        A valid key moves the connection into the share of keys.
        """
        address = self.address_of(scope)
        try:
            principal = token if isinstance(token, Refused) else await self.authenticator.authenticate(token)
        except (Unavailable, Corrupt) as fault:
            return self.refuse(fault)
        if wait_ms := self._wait_ms(principal, address, 1):
            return self._rate_limited(wait_ms)
        if isinstance(principal, Refused):
            return self.refuse(principal, WWW_AUTHENTICATE)
        place: ConnectionPlace | None = scope["state"]["connection"].place
        refusal = place.on_key(principal.name) if place is not None and principal is not ANONYMOUS else None
        return principal if refusal is None else self.refuse(refusal)

    def why_not_stay(self, scope: Scope) -> Response | None:
        """A connection on probation is answered and closed: it may not become a stream."""
        place: ConnectionPlace | None = scope["state"]["connection"].place
        if place is None or not place.is_on_probation:
            return None
        hint = "connect with a key, or try again later"
        return self.refuse(Refused("SEC-001", "all places without a key are taken", hint, "RateLimited"), status=503)

    async def pace(self, principal: Principal, address: str, tokens: int) -> None:
        """Take as many tokens of the sender's bucket, and wait for them where it has fewer. A burst may be less."""
        for taken in range(0, tokens, self.settings.batch_max):
            some = min(tokens - taken, self.settings.batch_max)
            while wait_ms := self._wait_ms(principal, address, some):
                await self._clock.sleep(wait_ms)

    def why_not_public(self, address: str) -> Response | None:
        """The limit of public pages: the same rate as for requests, from a bucket of their own."""
        wait_ms = self._of_address.take(f"{client_of(address)} looks")
        return self._rate_limited(wait_ms) if wait_ms else None

    async def answer(
        self, raw: bytes, principal: Principal, address: str, methods: Mapping[str, RpcMethod] | None = None
    ) -> Response:
        """The answer to a message of an admitted principal."""
        settings, length = self.settings, len(raw) // BYTES_PER_TOKEN
        if length and (wait_ms := self._wait_ms(principal, address, length)):  # also where it is refused afterwards
            return self._rate_limited(wait_ms)
        message = jsonrpc.decode(
            raw, depth_max=settings.depth_max, batch_max=settings.batch_max, values_max=settings.values_max
        )
        if isinstance(message, Refused):
            return self.refuse(message)
        cost = self._cost(message)
        if cost > (burst := settings.address_burst if principal is ANONYMOUS else settings.key_burst):
            says = f"it counts as {cost} requests, at most {burst} at a time"
            return self.refuse(Refused("SEC-001", says, "ask for less, or in several messages", "TooLarge"))
        if cost > 1 and (wait_ms := self._wait_ms(principal, address, cost - 1)):
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

    def _cost(self, message: jsonrpc.RpcMessage) -> int:
        """As how many requests a message counts: what takes long to answer counts as several (SEC-002)."""
        asked = [each for each in message.requests if isinstance(each, jsonrpc.RpcRequest)]
        costs = (self.methods[each.method].cost for each in asked if each.method in self.methods)
        more = sum(cost - 1 for cost in costs) + sum(cost_of_page(each.params) for each in asked)
        return len(message.requests) + more

    def refuse(self, error: Refused | Exception, *headers: Header, status: int | None = None) -> Response:
        """A refusal of the server itself, counted."""
        self.metrics.refusals[error.name if isinstance(error, Refused) else type(error).__name__] += 1
        return refusal_response(error, *headers, status=status)

    def bytes_max(self, principal: Principal) -> int:
        return self.settings.anonymous_bytes_max if principal is ANONYMOUS else self.settings.body_bytes_max

    def _wait_ms(self, principal: Principal | Refused, address: str, tokens: int) -> int:
        if isinstance(principal, Refused) or principal is ANONYMOUS:
            return self._of_address.take(client_of(address), tokens)
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
