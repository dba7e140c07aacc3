"""`GET /v1/live`: the overview as server-sent events. First all of it, then the sections that changed.

It is read and encoded once for all viewers, and not at all while there are none. A viewer has no queue: when it is
ready for more it gets what has changed since it was last sent something, so a slow one skips what is outdated.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.api.dashboard.alerts import find_alerts
from holdfast.api.dashboard.summary import node_facts, node_summary
from holdfast.api.dashboard.timeline import Timeline
from holdfast.api.http.connection import ClientConnection
from holdfast.api.http.gateway import Gateway
from holdfast.api.http.responses import OK, Receive, Response, Scope, Send, send_response
from holdfast.api.http.sse import RETRY_LINE, SSE_HEADERS
from holdfast.api.node_access import NodeAccess, why_not_allowed
from holdfast.api.rpc.params import to_json
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.engine.lookups.overview import GetOverview
from holdfast.engine.queries.metrics import GetQueueMetrics

OVERVIEW_METHOD: Final = "node.getOverview"
PATH: Final = "/v1/live"
TICK_S: Final = 0.5
SAMPLE_S: Final = 5.0
SILENT_TICKS: Final = 4
"""After N ticks without a change a viewer is told that the node is still there."""


class LiveOverview:
    """Follows the node while somebody looks, and samples the curves all the time."""

    def __init__(self, access: NodeAccess) -> None:
        self._access = access
        self.viewers: set[LiveViewer] = set()
        self.timeline = Timeline()
        self._sections: dict[str, bytes] = {}
        self._changed_at: dict[str, int] = {}
        """The tick at which a section last changed."""
        self._deltas: dict[int, bytes] = {}
        """What a viewer of an earlier tick needs now: encoded for the first of them."""
        self.tick = 0
        self._fault: str | None = None
        """The rule by which the node did not answer last."""
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        self._tasks = [asyncio.create_task(self._sample_for_ever(), name="dashboard-samples")]

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for viewer in list(self.viewers):
            viewer.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def join(self) -> LiveViewer:
        viewer = LiveViewer(self)
        self.viewers.add(viewer)
        if not any(task.get_name() == "dashboard-live" for task in self._tasks):
            self._tasks.append(asyncio.create_task(self._follow(), name="dashboard-live"))
        return viewer

    def leave(self, viewer: LiveViewer) -> None:
        self.viewers.discard(viewer)

    def delta(self, tick: int) -> bytes:
        """The sections that changed after a tick, as one event; empty where none has."""
        if tick not in self._deltas:
            names = [name for name, changed in self._changed_at.items() if changed > tick]
            parts = b",".join(b'"%s":%s' % (name.encode(), self._sections[name]) for name in names)
            self._deltas[tick] = b"id: %d\nevent: overview\ndata: {%s}\n\n" % (self.tick, parts) if names else b""
        return self._deltas[tick]

    async def refresh(self) -> bool:
        """Read the node once; whether anything changed."""
        summary = await node_summary(self._access)
        sections = {name: msgspec.json.encode(to_json(getattr(summary, name))) for name in summary.__struct_fields__}
        self.timeline.observe(summary.now_ms, summary.alerts)
        sections["samples"] = msgspec.json.encode(list(self.timeline.samples))
        sections["faults"] = msgspec.json.encode(list(self.timeline.faults))
        sections["alert_history"] = msgspec.json.encode(self.timeline.history())
        changed = [name for name, encoded in sections.items() if self._sections.get(name) != encoded]
        if not set(changed) - {"now_ms", "as_of"}:
            return False
        self.tick += 1
        self._deltas.clear()
        self._sections = sections
        self._changed_at |= dict.fromkeys(changed, self.tick)
        return True

    async def _follow(self) -> None:
        """Ends when the last viewer has left."""
        try:
            while self.viewers:
                await self._refresh_viewers()
                await asyncio.sleep(TICK_S)
        finally:
            task = asyncio.current_task()
            self._tasks = [each for each in self._tasks if each is not task]

    async def _refresh_viewers(self) -> None:
        """A fault is told with the next sign of life, by its rule alone: anybody may be looking."""
        try:
            has_changed, self._fault = await self.refresh(), None
        except (Unavailable, Corrupt) as fault:
            has_changed, self._fault = False, fault.rule
        if has_changed:
            for viewer in self.viewers:
                viewer.wake.set()

    def sign_of_life(self) -> bytes:
        """For a viewer whom nothing was sent for a while: this server is there, and whether the node answers it."""
        return b"event: still\ndata: %s\n\n" % msgspec.json.encode({"fault": self._fault})

    async def _sample_for_ever(self) -> None:
        while True:
            with suppress(Unavailable, Corrupt):
                self.sample()
            await asyncio.sleep(SAMPLE_S)

    def sample(self) -> None:
        """Without waiting for the disk: a curve may be a batch ahead of what is durable."""
        source = self._access.source
        seen = source.query_undurable(GetOverview(source.now_ms()))
        self.timeline.sample(seen, source.query_undurable(GetQueueMetrics()).metrics.counts)
        self.timeline.observe(seen.now_ms, find_alerts(seen, node_facts(self._access), source.policy))


class LiveViewer:
    """One open page: how far it has seen."""

    def __init__(self, live: LiveOverview) -> None:
        self._live, self._tick = live, 0
        self.wake = asyncio.Event()
        self.wake.set()
        self.has_ended = False

    def end(self) -> None:
        self.has_ended = True
        self.wake.set()

    async def next(self) -> bytes:
        """What changed, or a sign of life; empty at the end."""
        while not self.has_ended:
            self.wake.clear()
            if chunk := self._live.delta(self._tick):
                self._tick = self._live.tick
                return chunk
            try:
                async with asyncio.timeout(SILENT_TICKS * TICK_S):
                    await self.wake.wait()
            except TimeoutError:
                return self._live.sign_of_life()
        return b""


class LiveEndpoint:
    """Sends the overview to one page until it is closed."""

    def __init__(self, gateway: Gateway, live: LiveOverview) -> None:
        self._gateway, self._live = gateway, live

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        if (refused := await self._why_not(scope)) is not None:
            await send_response(send, refused)
            return
        connection: ClientConnection = scope["state"]["connection"]
        viewer = self._live.join()
        connection.on_lost(viewer.end)
        slow_s = self._gateway.settings.slow_ms / 1000
        try:
            await send({"type": "http.response.start", "status": OK, "headers": SSE_HEADERS})
            chunk = RETRY_LINE
            while chunk:
                if not await connection.can_send(slow_s):
                    self._gateway.metrics.disconnected["slow"] += 1
                    connection.abort()
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = await viewer.next()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._live.leave(viewer)

    async def _why_not(self, scope: Scope) -> Response | None:
        gateway = self._gateway
        principal = await gateway.admit(gateway.token_of(scope), scope)
        if isinstance(principal, Response):
            return principal
        if denied := why_not_allowed(principal, OVERVIEW_METHOD, gateway.methods[OVERVIEW_METHOD].roles):
            return gateway.refuse(denied)
        if len(self._live.viewers) >= gateway.settings.subscribers_max:
            message = f"{gateway.settings.subscribers_max} pages are open already"
            return gateway.refuse(Refused("SEC-001", message, "close one, or look at another node", "Unavailable"))
        return gateway.why_not_stay(scope)
