"""Rate limits (SEC-001): calls over the limit of an address are refused, acts over the limit of a provider wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from holdfast.api.grpc.call_wrapping import CallBody, CallRefused, Context, Handler, Interceptor, wrap_call
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.rate_limit import TokenBuckets
from holdfast.core.base.errors import Refused
from holdfast.ports import Clock


class RateInterceptor(Interceptor):
    """Refuses calls over the limit of an address, before authentication; a stream counts as one call."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._calls = TokenBuckets(clock, settings.address_per_s, settings.address_burst)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        return handler if handler is None else wrap_call(handler, self._limited)  # type: ignore[return-value]

    def _limited(self, body: CallBody) -> CallBody:
        async def limited(request: Any, context: Context) -> Any:
            if wait_ms := self._calls.take(peer_address(context.peer())):
                hint = f"try again in {wait_ms} ms"
                raise CallRefused(Refused("SEC-001", "too many calls from this address", hint, "RateLimited"))
            return await body(request, context)

        return limited


def peer_address(peer: str) -> str:
    """The address without its port: `ipv4:192.0.2.7:4711`, `ipv6:[2001:db8::7]:4711`, or any other form of gRPC."""
    kind, _, where = peer.partition(":")
    return where.rpartition(":")[0] if kind in ("ipv4", "ipv6") else peer


class ActRateLimiter:
    """An agent that exceeds the rate of acts is not refused: its next message is read later."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._clock, self._acts = clock, TokenBuckets(clock, settings.acts_per_s, settings.acts_burst)

    async def wait_turn(self, name: str, acts: int) -> None:
        """Return once this many acts are within the limit of `name`; a message counts as one act at least."""
        while wait_ms := self._acts.take(name, max(1, acts)):
            await self._clock.sleep(wait_ms)
