"""Limits of clients (SEC-001): calls over the limits of an address are refused, acts over that of a provider wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import unquote

import grpc

from holdfast.api.front.peer_name import read_peer
from holdfast.api.grpc.call_wrapping import CallBody, CallRefused, Context, Handler, Interceptor, wrap_call
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.limits.addresses import client_of
from holdfast.api.limits.rate_limit import TokenBuckets
from holdfast.core.base.errors import Refused
from holdfast.ports import Clock


class RateInterceptor(Interceptor):
    """Refuses calls over the limits of an address, before authentication; a stream counts as one call."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._calls = TokenBuckets(clock, settings.address_per_s, settings.address_burst)
        self._open: Counter[str] = Counter()
        self._open_max = settings.address_calls_max

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        return handler if handler is None else wrap_call(handler, self._limited)  # type: ignore[return-value]

    def _limited(self, body: CallBody) -> CallBody:
        async def limited(request: Any, context: Context) -> Any:
            client = client_of(peer_address(context.peer()))
            if wait_ms := self._calls.take(client):
                hint = f"try again in {wait_ms} ms"
                raise CallRefused(Refused("SEC-001", "too many calls from this address", hint, "RateLimited"))
            with one_more(self._open, client, self._open_max, "calls"):
                return await body(request, context)

        return limited


@contextmanager
def one_more(counts: Counter[str], name: str, most: int, what: str) -> Iterator[None]:
    """Inside, one more is counted; refused where there are as many as there may be."""
    if counts[name] >= most:
        message = f"{most} {what} of this address are open"
        raise CallRefused(Refused("SEC-001", message, "end some, or try again later", "RateLimited"))
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


class UnprovenStreams:
    """Streams that have not answered their challenge: a few of each address, for ten seconds."""

    def __init__(self, most: int) -> None:
        self._open: Counter[str] = Counter()
        self._max = most

    def count(self, peer: str) -> AbstractContextManager[None]:
        return one_more(self._open, client_of(peer_address(peer)), self._max, "unanswered challenges")


def peer_address(peer: str) -> str:
    """The address without its port: `ipv4:192.0.2.7:4711`, `ipv6:[2001:db8::7]:4711`, or that of a forwarded client."""
    if (forwarded := read_peer(peer)) is not None:
        return forwarded.address
    kind, _, where = peer.partition(":")
    return unquote(where.rpartition(":")[0]).strip("[]") if kind in ("ipv4", "ipv6") else peer


class ActRateLimiter:
    """An agent that exceeds the rate of acts is not refused: its next message is read later."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._clock, self._acts = clock, TokenBuckets(clock, settings.acts_per_s, settings.acts_burst)

    async def wait_turn(self, name: str, acts: int) -> None:
        """Return once this many acts are within the limit of `name`; a message counts as one act at least."""
        while wait_ms := self._acts.take(name, max(1, acts)):
            await self._clock.sleep(wait_ms)
