"""Routes durable events to the connected agents they concern: one task follows the journal for all streams (MAT-007).

An event costs one look-up, however many agents are connected; an idle agent costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.event import Event
from holdfast.core.base.values import EventNo, LeaseId, ProviderId
from holdfast.core.lease.messages import JobAssigned, LeaseAcked, LeaseClosed
from holdfast.core.lease.model import Lease
from holdfast.core.proof.messages import ProofAccepted, VoteCast
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.loop import Engine
from holdfast.engine.queries.jobs import ListLeasesOfProvider
from holdfast.engine.queries.node import Ping

OUTBOX_MAX: Final = 4_096
"""Events and answers that may wait for an agent that does not read."""
REPLACED: Final = Refused("PRV-003", "another stream of this provider replaced this one", "run one agent per key")
TOO_SLOW: Final = Refused("PRV-003", f"{OUTBOX_MAX} updates were not read", "connect again", "BackPressure")
_log = structlog.get_logger()


class StreamEnd(msgspec.Struct, frozen=True):
    """How a stream ends: with a refusal, with an error, or normally."""

    reason: Refused | Exception | None = None
    is_draining: bool = False


class AgentConnection:
    """One connected agent, and what is to be sent to it, in order. Whatever waits is sent as one message."""

    def __init__(self, public: bytes, id_: ProviderId) -> None:
        self.public, self.provider_id = public, id_
        self._outbox: deque[Any] = deque()
        """`StoredEvent`s and messages, and at last a `StreamEnd`."""
        self._has_items = asyncio.Event()
        self.leases: set[LeaseId] = set()
        self.snapshot_event = EventNo(0)
        """The leases it was sent at the beginning are as of this event; only later events are sent."""

    def send(self, item: object) -> None:
        if len(self._outbox) < OUTBOX_MAX:
            self._put(item)
        elif len(self._outbox) == OUTBOX_MAX:
            self._put(StreamEnd(TOO_SLOW))

    def end(self, end: StreamEnd) -> None:
        self._put(end)

    def _put(self, item: object) -> None:
        self._outbox.append(item)
        self._has_items.set()

    async def take(self) -> list[Any]:
        """All that waits, at least one item."""
        while not self._outbox:
            self._has_items.clear()
            await self._has_items.wait()
        items = list(self._outbox)
        self._outbox.clear()
        return items


class AgentRouter:
    """The connected agents, and which of them holds which live lease."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connections: dict[ProviderId, AgentConnection] = {}
        self._holders: dict[LeaseId, AgentConnection] = {}
        self._follower: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._connections)

    async def connect(self, connection: AgentConnection) -> list[Lease]:
        """Send this connection its events from now on, and return its leases as of now. An older connection ends."""
        older = self._connections.get(connection.provider_id)
        if older is not None:
            self.disconnect(older)
            older.end(StreamEnd(REPLACED))
        self._connections[connection.provider_id] = connection
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow(self._engine.durable_head.last), name="agent router")
        held = self._engine.query_undurable(ListLeasesOfProvider(connection.provider_id))
        connection.snapshot_event = held.as_of
        for lease in held.leases:  # before any await: each later event is routed, none is lost or sent twice
            self._route_lease(connection, lease.id)
        await self._engine.query_durable(Ping())
        return held.leases

    def disconnect(self, connection: AgentConnection) -> None:
        """Forget the connection; it may be called again."""
        if self._connections.get(connection.provider_id) is connection:
            del self._connections[connection.provider_id]
        for lease_id in connection.leases:
            if self._holders.get(lease_id) is connection:
                del self._holders[lease_id]
        if not self._connections and self._follower is not None:
            self._follower.cancel()
            self._follower = None

    def _route_lease(self, connection: AgentConnection, lease_id: LeaseId) -> None:
        self._holders[lease_id] = connection
        connection.leases.add(lease_id)

    # ------------------------------------------------------------------------------------ following

    async def _follow(self, after: EventNo) -> None:
        reason: Exception = Unavailable("ENG-006", "the node is stopping", "connect again in a moment")
        try:
            async for events in self._engine.event_stream.follow_batches(after):
                for stored in events:
                    dispatch = _DISPATCH.get(type(stored.event))
                    if dispatch is not None and (connection := dispatch(self, stored.event)) is not None:
                        connection.send(stored)
        except Exception as fault:
            _log.exception("agent_router_stopped")
            reason = fault
        for connection in list(self._connections.values()):
            connection.end(StreamEnd(reason))

    def _on_assigned(self, event: JobAssigned) -> AgentConnection | None:
        connection = self._connections.get(event.provider_id)
        if connection is not None:
            self._route_lease(connection, event.lease_id)
        return connection

    def _on_ended(self, lease_id: LeaseId) -> AgentConnection | None:
        connection = self._holders.pop(lease_id, None)
        if connection is not None:
            connection.leases.discard(lease_id)
        return connection


_DISPATCH: Final[dict[type[Event], Callable[[AgentRouter, Any], AgentConnection | None]]] = {
    JobAssigned: lambda router, event: router._on_assigned(event),
    LeaseAcked: lambda router, event: router._holders.get(event.id),
    LeaseClosed: lambda router, event: router._on_ended(event.id),
    ProofAccepted: lambda router, event: router._on_ended(event.lease_id),
    VoteCast: lambda router, event: router._on_ended(event.lease_id),
}


def is_after_snapshot(connection: AgentConnection, stored: StoredEvent) -> bool:
    """Whether the event is later than the leases that the agent was sent at the beginning."""
    return stored.number > connection.snapshot_event
