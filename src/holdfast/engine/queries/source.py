"""Who can be asked: the owner, or a follower that has folded the same journal (ENG-006)."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.policy import Policy
from holdfast.engine.event_stream import EventStream
from holdfast.engine.projection.payload_cache import PayloadCache
from holdfast.engine.queries.query import Query
from holdfast.ports import Journal, Tables

T = TypeVar("T")


class ReplicationStatus(msgspec.Struct, frozen=True):
    """How far a node has come."""

    role: str
    status: str
    tip: JournalHead
    """The last batch that the node has applied and that is durable."""
    tables_as_of: EventNo
    fault: Exception | None = None
    """What ended the node, where something did."""


class ReadSource(Protocol):
    """A node that answers queries."""

    journal: Journal
    tables: Tables
    event_stream: EventStream
    payloads: PayloadCache
    """Payloads that the tables may not hold yet."""

    @property
    def policy(self) -> Policy:
        """The policy that counts now."""
        ...

    async def query_durable(self, query: Query[T]) -> T:
        """The answer, once everything that it may rest on is durable."""
        ...

    def query_undurable(self, query: Query[T]) -> T:
        """The answer at once: an owner that fails may lose what it rests on.

        Only for an answer that no client acts on before something durable follows: a metric, a wake-up, a check
        in front of a command, or a read whose result waits for a durable query.
        """
        ...

    async def wait_tables(self, event: EventNo) -> None:
        """Return when the tables are complete up to this event."""
        ...

    def now_ms(self) -> int: ...
    def replication_status(self) -> ReplicationStatus: ...


class Page(msgspec.Struct, frozen=True):
    """Some rows in key order, and the event up to which they are complete (ENG-004)."""

    rows: list[Any]
    as_of: EventNo
    next_after: str | int | None
    """Where the next page starts, None at the end."""
