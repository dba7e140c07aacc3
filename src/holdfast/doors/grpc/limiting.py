"""How often is too often (SEC-001): calls by address are refused, acts on a stream are heard more slowly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from holdfast.core.refusal import Refused
from holdfast.doors.buckets import Buckets
from holdfast.doors.grpc.handling import Body, Context, Handler, Interceptor, TurnedAway, put_around
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.ports import Clock


class Limiting(Interceptor):
    """Turns away who calls too often from one address, before anybody asks who it is: a stream is one call."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._calls = Buckets(clock, settings.address_per_s, settings.address_burst)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler: Handler | None = await continuation(handler_call_details)
        return handler if handler is None else put_around(handler, self._limited)  # type: ignore[return-value]

    def _limited(self, body: Body) -> Body:
        async def limited(request: Any, context: Context) -> Any:
            if wait_ms := self._calls.take(address_in(context.peer())):
                hint = f"ask again in {wait_ms} ms"
                raise TurnedAway(Refused("SEC-001", "called too often", hint, "RateLimited"))
            return await body(request, context)

        return limited


def address_in(peer: str) -> str:
    """The address without its port: `ipv4:192.0.2.7:4711`, `ipv6:[2001:db8::7]:4711`, or whatever else gRPC says."""
    kind, _, where = peer.partition(":")
    return where.rpartition(":")[0] if kind in ("ipv4", "ipv6") else peer


class Pace:
    """Who says more on a stream than it may is not refused: its next message is read later."""

    def __init__(self, clock: Clock, settings: GrpcSettings) -> None:
        self._clock, self._acts = clock, Buckets(clock, settings.acts_per_s, settings.acts_burst)

    async def keep(self, name: str, acts: int) -> None:
        """Return when so many acts of this one are within its measure; a message counts at least once."""
        while wait_ms := self._acts.take(name, max(1, acts)):
            await self._clock.sleep(wait_ms)
