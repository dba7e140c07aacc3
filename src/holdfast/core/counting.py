"""From an event to what is counted of it (OBS-001), just before it takes effect, while memory still has its subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from holdfast.core.adopt import QUOTA_LOWERED
from holdfast.core.event import Event
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import JobAssigned, JobExpired, JobFailed, LeaseClosed, LeaseRenewed
from holdfast.core.lease.quorum import QUORUM_LOST
from holdfast.core.lease.record import Leases
from holdfast.core.proof.acts import CompletionIgnored, ProofAccepted, ProofRefused, Trouble
from holdfast.core.proof.votes import VoteCast
from holdfast.core.provider.acts import HeartbeatMissed, ProviderSlashed
from holdfast.core.queue.acts import JobAdmitted, JobCancelled
from holdfast.core.queue.apply import QUORUM_REACHED
from holdfast.core.queue.books import Queue
from holdfast.core.queue.requeue import JobRequeued
from holdfast.core.tally import Tally
from holdfast.core.values import LeaseId, TaskId

DECLINED, OTHER = "DECLINED", "OTHER"
LOST: Final = frozenset(
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
        Trouble.VERIFIER_FAILED.value,
        Trouble.NO_VERIFIER.value,
    }
)
"""Why leases end without a result. A provider that declines may say what it likes, which is no label."""


class Counted(Protocol):
    """What is looked at of the state."""

    tally: Tally
    queue: Queue
    leases: Leases


def _admitted(state: Counted, event: JobAdmitted) -> None:
    state.tally.count("admitted", event.kind)


def _assigned(state: Counted, event: JobAssigned) -> None:
    job, tally = state.queue.jobs[event.job_id], state.tally
    tally.count("given", job.kind)
    if event.attempt:
        tally.count("retried", job.kind)
    else:
        tally.waits[job.kind].add(event.t_start_ms - job.enqueue_ms)


def _closed(state: Counted, event: LeaseClosed) -> None:
    known = event.reason if event.reason in LOST else OTHER
    is_declined = event.denied_until_ms and not event.is_failure
    state.tally.count("lost", DECLINED if is_declined else known)


def _accepted(state: Counted, event: ProofAccepted) -> None:
    _done(state, event.lease_id, event.ended_ms)
    _ended(state, event.task_id, _COMPLETED)


def _done(state: Counted, lease_id: LeaseId, ended_ms: int) -> None:
    """Of a job with replicas each lease is done with its vote, before the job is."""
    lease = state.leases.by_id.get(lease_id)
    if lease is not None:
        state.tally.works[state.queue.jobs[lease.job_id].kind].add(ended_ms - lease.t_start_ms)


def _ended(state: Counted, id_: TaskId, how: str) -> None:
    state.tally.count(how, state.queue.jobs[id_].kind)


_COMPLETED, _EXPIRED, _FAILED, _CANCELLED = (
    state.value for state in (JobState.COMPLETED, JobState.EXPIRED, JobState.FAILED, JobState.CANCELLED)
)


def _slashed(state: Counted, event: ProviderSlashed) -> None:
    state.tally.count("slashed", event.severity)
    state.tally.count("penalty", event.severity, event.penalty)


COUNTED: Final[dict[type[Event], Callable[[Any, Any], None]]] = {
    JobAdmitted: _admitted,
    JobRequeued: lambda state, event: state.tally.count("requeued", event.job.kind),
    JobAssigned: _assigned,
    LeaseRenewed: lambda state, event: state.tally.count("renewed", "late" if event.is_late else "in time"),
    LeaseClosed: _closed,
    VoteCast: lambda state, event: _done(state, event.lease_id, event.ended_ms),
    ProofAccepted: _accepted,
    ProofRefused: lambda state, _: state.tally.count("refused"),
    CompletionIgnored: lambda state, _: state.tally.count("ignored"),
    JobExpired: lambda state, event: _ended(state, event.id, _EXPIRED),
    JobFailed: lambda state, event: _ended(state, event.id, _FAILED),
    JobCancelled: lambda state, event: _ended(state, event.id, _CANCELLED),
    ProviderSlashed: _slashed,
    HeartbeatMissed: lambda state, _: state.tally.count("missed"),
}
