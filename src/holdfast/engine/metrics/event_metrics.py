"""Which metrics events count (OBS-001), just before their run is applied, while memory still has their subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId, tally
from holdfast.core.job.model import JobState, ready_ms
from holdfast.core.lease.messages import JobAssigned, LeaseClosed, LeaseRenewed
from holdfast.core.lease.quorum import QUORUM_LOST
from holdfast.core.policy_change.decide import QUOTA_LOWERED
from holdfast.core.proof.messages import CompletionIgnored, ProofAccepted, ProofRefused, VerifierFault, VoteCast
from holdfast.core.provider.messages import HeartbeatMissed, ProviderSlashed
from holdfast.core.queue.apply import QUORUM_REACHED
from holdfast.core.queue.messages import JobAdmitted, JobCancelled, JobExpired, JobFailed
from holdfast.core.queue.requeue import JobRequeued
from holdfast.core.state import State
from holdfast.engine.metrics.queue_metrics import QueueMetrics

DECLINED, OTHER = "DECLINED", "OTHER"
ENDED_WITHOUT_RESULT: Final = frozenset(
    {
        "ACK_TIMEOUT",
        "LEASE_EXPIRED",
        "PROOF_INVALID",
        "PROVIDER_FAIL",
        "JOB_CANCELLED",
        "JOB_EXPIRED",
        "PROVIDER_JAILED",
        "PROVIDER_SUSPENDED",
        "PROVIDER_RETIRED",
        QUOTA_LOWERED,
        QUORUM_REACHED,
        QUORUM_LOST,
        VerifierFault.VERIFIER_FAILED.value,
        VerifierFault.NO_VERIFIER.value,
    }
)
"""Why leases end without a result. The free text of a provider that declines is not a label."""


class EventMetrics(QueueMetrics):
    """The metrics of a state that is decided upon: it sees each run of events before it is applied."""

    def observe(self, state: State, events: Sequence[Event]) -> None:
        if (count := EVENT_METRICS.get(type(events[0]))) is not None:
            count(self, state, events)


def metrics_of(state: State) -> EventMetrics:
    """What was counted since the owner of this state began; the first call begins it."""
    if not isinstance(state.observer, EventMetrics):
        state.observer = EventMetrics()
    return state.observer


Count = Callable[[QueueMetrics, State, Sequence[Any]], None]


def _count_admitted(metrics: QueueMetrics, _: State, events: Sequence[JobAdmitted]) -> None:
    for kind, count in tally([event.kind for event in events]).items():
        metrics.count("admitted", kind, count)


def _count_assigned(metrics: QueueMetrics, state: State, events: Sequence[JobAssigned]) -> None:
    jobs = state.queue.jobs
    given = [(jobs[event.job_id], event) for event in events]
    for kind, count in tally([job.kind for job, _ in given]).items():
        metrics.count("given", kind, count)
    for kind, count in tally([job.kind for job, event in given if event.attempt]).items():
        metrics.count("retried", kind, count)
    first = [(job.kind, event.t_start_ms - ready_ms(job)) for job, event in given if not event.attempt]
    for (kind, wait_ms), count in tally(first).items():
        metrics.wait_ms[kind].add(wait_ms, count)


def _count_closed(metrics: QueueMetrics, _: State, event: LeaseClosed) -> None:
    reason = event.reason if event.reason in ENDED_WITHOUT_RESULT else OTHER
    is_declined = event.denied_until_ms and not event.is_failure
    metrics.count("lost", DECLINED if is_declined else reason)


def _count_accepted(metrics: QueueMetrics, state: State, events: Sequence[ProofAccepted]) -> None:
    _observe_work(metrics, state, events)
    for kind, count in tally([state.queue.jobs[event.task_id].kind for event in events]).items():
        metrics.count(_COMPLETED, kind, count)


def _observe_work(metrics: QueueMetrics, state: State, events: Sequence[ProofAccepted | VoteCast]) -> None:
    """Of a job with replicas each lease is observed at its vote, before the job ends."""
    by_id, jobs = state.leases.by_id, state.queue.jobs
    leases = [(lease, event.ended_ms) for event in events if (lease := by_id.get(event.lease_id)) is not None]
    took = tally([(jobs[lease.job_id].kind, ended_ms - lease.t_start_ms) for lease, ended_ms in leases])
    for (kind, work_ms), count in took.items():
        metrics.work_ms[kind].add(work_ms, count)


def _count_ended(metrics: QueueMetrics, state: State, id_: TaskId, outcome: str) -> None:
    metrics.count(outcome, state.queue.jobs[id_].kind)


_COMPLETED, _EXPIRED, _FAILED, _CANCELLED = (
    state.value for state in (JobState.COMPLETED, JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED)
)


def _count_slashed(metrics: QueueMetrics, _: State, event: ProviderSlashed) -> None:
    metrics.count("slashed", event.severity)
    metrics.count("penalty", event.severity, event.penalty)


def _each(count: Callable[[QueueMetrics, State, Any], None]) -> Count:
    def count_each(metrics: QueueMetrics, state: State, events: Sequence[Any]) -> None:
        for event in events:
            count(metrics, state, event)

    return count_each


EVENT_METRICS: Final[Mapping[type[Event], Count]] = {
    JobAdmitted: _count_admitted,
    JobRequeued: _each(lambda metrics, _, event: metrics.count("requeued", event.job.kind)),
    JobAssigned: _count_assigned,
    LeaseRenewed: _each(lambda metrics, _, event: metrics.count("renewed", "late" if event.is_late else "in time")),
    LeaseClosed: _each(_count_closed),
    VoteCast: _observe_work,
    ProofAccepted: _count_accepted,
    ProofRefused: lambda metrics, _, events: metrics.count("refused", by=len(events)),
    CompletionIgnored: lambda metrics, _, events: metrics.count("ignored", by=len(events)),
    JobExpired: _each(lambda metrics, state, event: _count_ended(metrics, state, event.id, _EXPIRED)),
    JobFailed: _each(lambda metrics, state, event: _count_ended(metrics, state, event.id, _FAILED)),
    JobCancelled: _each(lambda metrics, state, event: _count_ended(metrics, state, event.id, _CANCELLED)),
    ProviderSlashed: _each(_count_slashed),
    HeartbeatMissed: lambda metrics, _, events: metrics.count("missed", by=len(events)),
}
