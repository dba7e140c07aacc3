"""What the queue publishes to the state machine; a job is cancelled by the workflow `cancel`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, CommandRuns, Commands, EventRuns, Events
from holdfast.core.queue import apply, decide, pauses, purge, replicas, requeue
from holdfast.core.queue.messages import (
    Enqueue,
    FeeRaised,
    JobAdmitted,
    JobCancelled,
    JobExpired,
    JobFailed,
    RaiseFee,
)

COMMAND_RUNS: Final[CommandRuns] = {Enqueue: decide.enqueue}
COMMANDS: Final[Commands] = {
    RaiseFee: decide.raise_fee,
    requeue.Requeue: requeue.requeue,
    purge.PurgeJobs: purge.purge,
    pauses.PauseKind: pauses.pause,
    pauses.ResumeKind: pauses.resume,
}
EVENT_RUNS: Final[EventRuns] = {JobAdmitted: apply.apply_jobs_admitted}
EVENTS: Final[Events] = {
    JobCancelled: apply.apply_job_cancelled,
    FeeRaised: apply.apply_fee_raised,
    JobExpired: apply.apply_job_expired,
    JobFailed: apply.apply_job_failed,
    replicas.ReplicaAdmitted: replicas.apply_replica_admitted,
    replicas.ReplicaEnded: replicas.apply_replica_ended,
    requeue.JobRequeued: requeue.apply_job_requeued,
    purge.JobsPurged: purge.apply_jobs_purged,
    pauses.KindPaused: pauses.apply_kind_paused,
    pauses.KindResumed: pauses.apply_kind_resumed,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    Enqueue: lambda _, command: decide.enqueue_claims(command),
    requeue.Requeue: requeue.requeue_claim_keys,
}
