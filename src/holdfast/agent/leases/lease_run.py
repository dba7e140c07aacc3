"""One lease of the agent: its progress, the node's view of it, and when it must be renewed."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from holdfast.agent.executors.contract import AnyExecutor
from holdfast.agent.executors.execute import Failed
from holdfast.agent.executors.registry import ExecutorKey
from holdfast.agent.leases.records import AcceptedOffer, Outcome
from holdfast.agent.transport.evidence_emitter import EmittedRecord, SpooledAt
from holdfast.core.job.spec import WorkPayload
from holdfast.spool import Ticket


class NodeView(StrEnum):
    """The node's view of a lease."""

    LIVE = "lives"
    SUBMITTED = "submitted"
    """The node has the result, and its verdict follows."""


class LeaseEnd(msgspec.Struct, frozen=True):
    """Why a lease is over."""

    cause: str
    """VERDICT, LOST, FAILED, GIVEN_BACK."""
    reason: str = ""


class LeaseTimes(msgspec.Struct, frozen=True):
    """The times in an offer, by the node's clock."""

    time_ms: int
    renew_by_ms: int
    t_deadline_ms: int
    renewals: int


class LeaseRun:
    """One lease, from its offer until nothing of it is needed any more."""

    def __init__(self, offer: AcceptedOffer) -> None:
        self.offer = offer
        self.executor_key: ExecutorKey = ("", "")
        self.work: tuple[AnyExecutor, WorkPayload] | None = None
        """Its executor and its decoded payload, if they were looked up."""
        self.accepted: Ticket | None = None
        """Of the record that carries its offer."""
        self.reporting_start: asyncio.Task[None] | None = None
        self.is_started = False
        """The record that its work has started was emitted."""
        self.has_files = False
        """It has a folder of its own in the work folder."""
        self.has_output = False
        """Its output is in that folder."""
        self.is_resumed = False
        """An earlier process has left it on disk."""
        self.media_type = ""
        """Of its output, where only its execution could say."""
        self.output: bytes | Failed | None = None
        """What the executor returned, while its outcome is not decided."""
        self.outcome: Outcome | None = None
        """From here on the outcome of the lease is decided."""
        self.is_reported = False
        """The record of its outcome was emitted."""
        self.emitted: list[EmittedRecord] = []
        """That record, and the fence behind it."""
        self.is_fenced = False
        """Its fence was emitted: nothing of this lease is emitted any more (EVD-005)."""
        self.outcome_spooled_at: SpooledAt | None = None
        """The record of its outcome, once it is spooled."""
        self.held_at: SpooledAt | None = None
        """The record that holds its offer, and later its output: it is kept until it is not needed any more."""
        self.node_view: asyncio.Future[NodeView] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[LeaseEnd] = asyncio.get_running_loop().create_future()
        self.renewals = 0
        self.renew_due_ms: int | None = None
        """By our monotonic clock; None while it is unknown, or no renewal is possible."""
        self._interval_ms = 0
        self.started_ms = 0

    @classmethod
    def resumed(cls, offer: AcceptedOffer, *, has_files: bool, has_output: bool = False) -> LeaseRun:
        run = cls(offer)
        run.is_resumed = True
        run.has_files, run.has_output = has_files, has_output
        return run

    @property
    def id(self) -> bytes:
        return self.offer.lease_id

    @property
    def is_on_disk(self) -> bool:
        """Its offer is: only then it may be acknowledged (EVD-006)."""
        return self.is_resumed or (self.accepted is not None and self.accepted.is_durable)

    @property
    def is_executing(self) -> bool:
        """Its output is not known: only so long progress is reported (EVD-005)."""
        return self.is_working and self.output is None and not self.has_output

    @property
    def is_working(self) -> bool:
        """It occupies a slot: its outcome is not decided."""
        return self.outcome is None and not self.is_reported and not self.ended.done()

    @property
    def is_unreported(self) -> bool:
        """Its outcome is not spooled: the lease must be renewed."""
        return self.outcome_spooled_at is None and not self.ended.done()

    def took_ms(self, now_ms: int) -> int:
        """How long its work takes so far; 0 before it began."""
        return now_ms - self.started_ms if self.started_ms else 0

    def on_node_view(self, view: NodeView) -> None:
        """The node has answered about the lease."""
        if not self.node_view.done():
            self.node_view.set_result(view)

    def end(self, cause: str, reason: str = "") -> None:
        """The first end counts."""
        if not self.ended.done():
            self.ended.set_result(LeaseEnd(cause, reason))

    def schedule_renewal(self, times: LeaseTimes, now_ms: int) -> None:
        """Renew a little before `renew_by_ms`: after it the renewal is late (LEA-004)."""
        span = max(1, times.t_deadline_ms - times.renew_by_ms)
        self.renewals, self._interval_ms = times.renewals, span
        self.renew_due_ms = now_ms + times.renew_by_ms - times.time_ms - span // 8

    def on_renewed(self, renewal: int, now_ms: int) -> None:
        """The next renewal is due after the time between renew_by and the deadline: at most what a renewal grants."""
        self.renewals = max(self.renewals, renewal)
        self.renew_due_ms = now_ms + self._interval_ms
