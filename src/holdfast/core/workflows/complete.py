"""A completion (RCV-001, PRF-003): submitted by the lease's holder; an accepted proof ends lease and job."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.handlers import Commands, Events
from holdfast.core.job.model import JobTransition
from holdfast.core.lease import apply as lease_apply
from holdfast.core.lease.model import LeaseTransition
from holdfast.core.proof import apply as proof_apply
from holdfast.core.proof.decide import submit_completion
from holdfast.core.proof.messages import ProofAccepted, SubmitCompletion
from holdfast.core.provider.apply import record_completion
from holdfast.core.queue import apply as queue_apply
from holdfast.core.result import apply as result_apply
from holdfast.core.retention.apply import record_recent_digest
from holdfast.core.retention.decide import check_not_being_deleted
from holdfast.core.state import State

LATE_REFUSALS: Final = frozenset({"LeaseLost", "ProofConflict"})


def submit(state: State, command: SubmitCompletion, now_ms: int) -> Decided | Refused:
    """RCV-001, RCV-002: a late completion changes no fact; the metrics count it as ignored."""
    decided = check_not_being_deleted(state, command) or submit_completion(state, command, now_ms)
    if isinstance(decided, Refused) and decided.name in LATE_REFUSALS:
        state.metrics.count("ignored")
    return decided


def apply_proof_accepted(state: State, event: ProofAccepted) -> None:
    """PRF-003: lease and job COMPLETED, nullifier reserved, the result resolved in the open block, all in one batch."""
    if event.paid:
        proof_apply.apply_quorum_accepted(state, event)
    else:
        lease_apply.finish(state, event.lease_id, LeaseTransition.COMPLETE, "", event.ended_ms)
        queue_apply.finish(state, event.task_id, JobTransition.ACCEPT, "", event.ended_ms)
        record_completion(state, state.providers[event.provider_id])
    proof_apply.reserve_nullifier(state, event)
    result_apply.add_result_record(state, event)
    result_apply.resolve(state, event.task_id)
    record_recent_digest(state, event.digest)


COMMANDS: Final[Commands] = {SubmitCompletion: submit}
EVENTS: Final[Events] = {ProofAccepted: apply_proof_accepted}
