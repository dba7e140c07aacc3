"""Endpoints for monitoring (OBS-001): whether the process lives, whether the node answers, and the metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.api.error_codes import error_reply
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.metrics.requests import CONTENT_TYPE
from holdfast.api.http.responses import (
    OK,
    Receive,
    Response,
    Scope,
    Send,
    refusal_json,
    send_response,
)
from holdfast.api.node_access import ANONYMOUS, READ_METRICS, READERS, RpcCall, why_not_allowed
from holdfast.api.rpc.openrpc import DISCOVER
from holdfast.api.rpc.params import NoParams
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.engine import queries
from holdfast.engine.queries.node import Ping

MEASURE_S_MAX: Final = 1.0
"""How long a scrape waits for the tables."""


class HealthEndpoints:
    """`/healthz`, `/readyz`, `/metrics` and `/openrpc.json`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.is_closing = False

    async def alive(self, _: Scope, __: Receive, send: Send) -> None:
        await send_response(send, _json({"status": "alive"}))

    async def ready(self, _: Scope, __: Receive, send: Send) -> None:
        refusal = await self._why_not_ready()
        replication = self._gateway.access.source.replication_status()
        position = {"role": replication.role, "phase": replication.status, "event": replication.tip.last}
        if refusal is None:
            await send_response(send, _json({"status": "ready"} | position))
            return
        body = {"status": "not ready"} | position | refusal_json(refusal)
        await send_response(send, _json(body, error_reply(refusal).codes.http))

    async def metrics(self, scope: Scope, _: Receive, send: Send) -> None:
        if (response := await self._why_not_metrics(scope)) is None:
            metrics = self._gateway.metrics
            metrics.dead_letters = await self._dead_letters()
            await self._measure_tiers()
            response = Response(OK, metrics.text(), ((b"content-type", CONTENT_TYPE),))
        await send_response(send, response)

    async def _measure_tiers(self) -> None:
        """OBS-001: what the tiers hold now; where the tables do not come along, what they held before."""
        if (collector := self._gateway.access.collector) is not None:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(MEASURE_S_MAX):
                    await collector.measure()

    async def document(self, scope: Scope, _: Receive, send: Send) -> None:
        if (response := self._gateway.why_not_public(self._gateway.address_of(scope))) is None:
            discover, call = self._gateway.methods[DISCOVER], RpcCall(DISCOVER, ANONYMOUS)
            raw: Any = await discover.handle(self._gateway.access, call, NoParams())
            response = Response(OK, bytes(raw))
        await send_response(send, response)

    async def _why_not_ready(self) -> Refused | None:
        """An owner whose journal does not confirm hangs instead of failing, so its answer has a time limit."""
        source, ready_ms = self._gateway.access.source, self._gateway.settings.ready_ms
        if self.is_closing:
            return Refused("OBS-001", "the node is stopping", name="Unavailable")
        if (cause := source.replication_status().fault) is not None:
            return Refused("OBS-001", f"the node failed: {cause}", "see its log", "Unavailable")
        try:
            async with asyncio.timeout(ready_ms / 1000):
                await source.query_durable(Ping())
        except TimeoutError:
            return Refused("OBS-001", f"no answer within {ready_ms} ms", "check its disk", "Unavailable")
        except (Unavailable, Corrupt) as fault:
            return Refused(fault.rule, fault.message, fault.hint, "Unavailable")
        return None

    async def _dead_letters(self) -> int | None:
        """RTY-001: dead letters are only in the tables. A node whose tables do not answer shows the other metrics."""
        try:
            async with asyncio.timeout(self._gateway.settings.ready_ms / 1000):
                page = await queries.page(self._gateway.access.source, "failed_job", {}, 0, queries.PAGE_MAX)
        except (TimeoutError, Unavailable, Corrupt):
            return None
        return len(page.rows)

    async def _why_not_metrics(self, scope: Scope) -> Response | None:
        gateway = self._gateway
        if gateway.settings.public_metrics:
            return gateway.why_not_public(gateway.address_of(scope))
        principal = await gateway.admit(gateway.token_of(scope), scope)
        if isinstance(principal, Response):
            return principal
        refusal = why_not_allowed(principal, READ_METRICS, READERS)
        return None if refusal is None else gateway.refuse(refusal)


def _json(body: dict[str, Any], status: int = OK) -> Response:
    return Response(status, msgspec.json.encode(body))
