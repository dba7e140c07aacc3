"""What the queue publishes to the state machine; a job is cancelled by the workflow `cancel`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, CommandRuns, Commands, EventRuns, Events
from holdfast.core.queue import apply, decide, messages, pauses, purge, replicas, requeue

COMMAND_RUNS: Final[CommandRuns] = {messages.Enqueue: decide.enqueue}
COMMANDS: Final[Commands] = {
    messages.RaiseFee: decide.raise_fee,
    requeue.Requeue: requeue.requeue,
    purge.PurgeJobs: purge.purge,
    pauses.PauseKind: pauses.pause,
    pauses.ResumeKind: pauses.resume,
}
EVENT_RUNS: Final[EventRuns] = {messages.JobAdmitted: apply.apply_jobs_admitted}
EVENTS: Final[Events] = {
    messages.JobCancelled: apply.apply_job_cancelled,
    messages.FeeRaised: apply.apply_fee_raised,
    messages.JobExpired: apply.apply_job_expired,
    messages.JobFailed: apply.apply_job_failed,
    replicas.ReplicaAdmitted: replicas.apply_replica_admitted,
    replicas.ReplicaEnded: replicas.apply_replica_ended,
    requeue.JobRequeued: requeue.apply_job_requeued,
    purge.JobsPurged: purge.apply_jobs_purged,
    pauses.KindPaused: pauses.apply_kind_paused,
    pauses.KindResumed: pauses.apply_kind_resumed,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    messages.Enqueue: lambda _, command: decide.enqueue_claims(command),
    requeue.Requeue: requeue.requeue_claim_keys,
}
