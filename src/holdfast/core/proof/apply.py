"""What an event does to proofs: votes, verdicts and equivocation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core.base.records import record_from
from holdfast.core.base.values import EventNo
from holdfast.core.job.model import JobTransition
from holdfast.core.lease import apply as lease_apply
from holdfast.core.lease.model import HasLeases, LeaseTransition
from holdfast.core.proof.messages import (
    CompletionIgnored,
    ProofAccepted,
    ProofRefused,
    TaskLinked,
    VoteCast,
    equivocation_key,
    link_key,
    nullifier_key,
)
from holdfast.core.proof.model import ProofVerdict
from holdfast.core.proof.votes import make_vote
from holdfast.core.provider.apply import record_completions, touch
from holdfast.core.queue import apply as queue_apply
from holdfast.core.queue import replicas


def apply_refused(state: HasLeases, event: ProofRefused) -> None:
    """PRF-002: the verdict is stored with its reasons."""
    number = state.last_event
    state.touched["verdict"][number] = record_from(ProofVerdict, event, event=number)


def apply_ignored(state: HasLeases, event: CompletionIgnored) -> None:
    """RCV-002: recorded in the journal; the penalty is a separate event, once per lease."""
    if event.is_penalized:
        state.claims.add(equivocation_key(event.lease_id), state.last_event)


def apply_vote_cast(state: HasLeases, event: VoteCast) -> None:
    """RCV-001: the replica and its lease are COMPLETED; whether it is paid depends on the other votes."""
    lease_apply.finish(state, LeaseTransition.COMPLETE, [(event.lease_id, "", event.ended_ms)])
    queue_apply.finish(state, event.task_id, JobTransition.ACCEPT, "", event.ended_ms)
    state.quorums[event.parent].votes.append(make_vote(event, state.last_event))
    touch(state, state.providers[event.provider_id])


def apply_quorum_accepted(state: HasLeases, event: ProofAccepted) -> None:
    """PRF-003: the job is COMPLETED and its replicas end with it; for those that agreed a completion is recorded."""
    job, votes = state.queue.jobs[event.task_id], state.quorums[event.task_id].votes
    replicas.split_payment(state, job, event.paid)
    queue_apply.finish(state, event.task_id, JobTransition.AGREE, "", event.ended_ms)
    agreeing = {payment.index for payment in event.paid}
    record_completions(state, Counter(vote.provider_id for vote in votes if vote.index in agreeing))


def reserve_nullifiers(state: HasLeases, events: Iterable[tuple[EventNo, ProofAccepted]]) -> None:
    """RES-001: one task, one nullifier, for ever; by the link a repeat of the same proof is recognised."""
    claim = state.claims.add
    for number, event in events:
        claim(nullifier_key(event.nullifier), number)
        if event.link:
            claim(link_key(event.task_id), number, TaskLinked(event.task_id, event.link))
