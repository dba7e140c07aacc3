"""Which metrics events count (OBS-001), just before their run is applied, while memory still has their subjects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from holdfast.core.base.event import Event
from holdfast.core.base.handlers import ApplyRun
from holdfast.core.base.values import TaskId, tally
from holdfast.core.index.metrics import QueueMetrics
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import JobAssigned, LeaseClosed, LeaseRenewed
from holdfast.core.lease.model import Leases
from holdfast.core.lease.quorum import QUORUM_LOST
from holdfast.core.policy_change.decide import QUOTA_LOWERED
from holdfast.core.proof.messages import CompletionIgnored, ProofAccepted, ProofRefused, VerifierFault, VoteCast
from holdfast.core.provider.messages import HeartbeatMissed, ProviderSlashed
from holdfast.core.queue.apply import QUORUM_REACHED
from holdfast.core.queue.messages import JobAdmitted, JobCancelled, JobExpired, JobFailed
from holdfast.core.queue.model import Queue
from holdfast.core.queue.requeue import JobRequeued

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


class HasMetrics(Protocol):
    """The parts of the state that the metrics read."""

    metrics: QueueMetrics
    queue: Queue
    leases: Leases


def _count_admitted(state: HasMetrics, events: Sequence[JobAdmitted]) -> None:
    for kind, count in tally([event.kind for event in events]).items():
        state.metrics.count("admitted", kind, count)


def _count_assigned(state: HasMetrics, events: Sequence[JobAssigned]) -> None:
    jobs, metrics = state.queue.jobs, state.metrics
    given = [(jobs[event.job_id], event) for event in events]
    for kind, count in tally([job.kind for job, _ in given]).items():
        metrics.count("given", kind, count)
    for kind, count in tally([job.kind for job, event in given if event.attempt]).items():
        metrics.count("retried", kind, count)
    first = [(job.kind, event.t_start_ms - job.enqueue_ms) for job, event in given if not event.attempt]
    for (kind, wait_ms), count in tally(first).items():
        metrics.wait_ms[kind].add(wait_ms, count)


def _count_closed(state: HasMetrics, event: LeaseClosed) -> None:
    reason = event.reason if event.reason in ENDED_WITHOUT_RESULT else OTHER
    is_declined = event.denied_until_ms and not event.is_failure
    state.metrics.count("lost", DECLINED if is_declined else reason)


def _count_accepted(state: HasMetrics, events: Sequence[ProofAccepted]) -> None:
    _observe_work(state, events)
    for kind, count in tally([state.queue.jobs[event.task_id].kind for event in events]).items():
        state.metrics.count(_COMPLETED, kind, count)


def _observe_work(state: HasMetrics, events: Sequence[ProofAccepted | VoteCast]) -> None:
    """Of a job with replicas each lease is observed at its vote, before the job ends."""
    by_id, jobs = state.leases.by_id, state.queue.jobs
    leases = [(lease, event.ended_ms) for event in events if (lease := by_id.get(event.lease_id)) is not None]
    took = tally([(jobs[lease.job_id].kind, ended_ms - lease.t_start_ms) for lease, ended_ms in leases])
    for (kind, work_ms), count in took.items():
        state.metrics.work_ms[kind].add(work_ms, count)


def _count_ended(state: HasMetrics, id_: TaskId, outcome: str) -> None:
    state.metrics.count(outcome, state.queue.jobs[id_].kind)


_COMPLETED, _EXPIRED, _FAILED, _CANCELLED = (
    state.value for state in (JobState.COMPLETED, JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED)
)


def _count_slashed(state: HasMetrics, event: ProviderSlashed) -> None:
    state.metrics.count("slashed", event.severity)
    state.metrics.count("penalty", event.severity, event.penalty)


def _each(count: Callable[[Any, Any], None]) -> ApplyRun:
    def count_each(state: Any, events: Sequence[Any]) -> None:
        for event in events:
            count(state, event)

    return count_each


EVENT_METRICS: Final[Mapping[type[Event], ApplyRun]] = {
    JobAdmitted: _count_admitted,
    JobRequeued: _each(lambda state, event: state.metrics.count("requeued", event.job.kind)),
    JobAssigned: _count_assigned,
    LeaseRenewed: _each(lambda state, event: state.metrics.count("renewed", "late" if event.is_late else "in time")),
    LeaseClosed: _each(_count_closed),
    VoteCast: _observe_work,
    ProofAccepted: _count_accepted,
    ProofRefused: lambda state, events: state.metrics.count("refused", by=len(events)),
    CompletionIgnored: lambda state, events: state.metrics.count("ignored", by=len(events)),
    JobExpired: _each(lambda state, event: _count_ended(state, event.id, _EXPIRED)),
    JobFailed: _each(lambda state, event: _count_ended(state, event.id, _FAILED)),
    JobCancelled: _each(lambda state, event: _count_ended(state, event.id, _CANCELLED)),
    ProviderSlashed: _each(_count_slashed),
    HeartbeatMissed: lambda state, events: state.metrics.count("missed", by=len(events)),
}
