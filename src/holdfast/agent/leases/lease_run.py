"""One lease of the agent: its progress, the node's view of it, and when it must be renewed."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from holdfast.agent.leases.work_dir import AcceptedOffer, Outcome, ResumedLease
from holdfast.agent.transport.evidence_emitter import SpooledAt


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
    """One lease, from its offer until none of its files is needed any more."""

    def __init__(self, offer: AcceptedOffer, *, has_output: bool = False, outcome: Outcome | None = None) -> None:
        self.offer = offer
        self.has_output, self.outcome = has_output, outcome
        self.outcome_spooled_at: SpooledAt | None = None
        """The record of its outcome, once it is spooled."""
        self.is_spooling_outcome = False
        """Its outcome, and the fence behind it, are being spooled."""
        self.is_offer_stored = False
        """Its offer is on disk."""
        self.is_resumed = False
        """An earlier process has left it on disk."""
        self.is_in_doubt = False
        """That process may have spooled the outcome, or died before."""
        self.node_view: asyncio.Future[NodeView] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[LeaseEnd] = asyncio.get_running_loop().create_future()
        self.renewals = 0
        self.renew_due_ms: int | None = None
        """By our monotonic clock; None while it is unknown, or no renewal is possible."""
        self._interval_ms = 0
        self.started_ms = 0

    @classmethod
    def from_resumed(cls, resumed: ResumedLease) -> LeaseRun:
        run = cls(resumed.offer, has_output=resumed.has_output, outcome=resumed.outcome)
        run.is_offer_stored = run.is_resumed = True
        run.is_in_doubt = resumed.outcome is not None
        return run

    @property
    def id(self) -> bytes:
        return self.offer.lease_id

    @property
    def is_working(self) -> bool:
        """It occupies a slot: its outcome is not decided."""
        return self.outcome is None and not self.ended.done()

    @property
    def is_unreported(self) -> bool:
        """Its outcome is not spooled: the lease must be renewed."""
        return self.outcome_spooled_at is None and not self.ended.done()

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
