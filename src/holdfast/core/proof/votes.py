"""The votes of a job's replicas (LEA-009, PRF-002 `quorum`): an accepted proof is a vote, n equal ones resolve the job.

The proof of the job is computed here from the votes that agree: anyone who knows them computes the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, Event
from holdfast.core.base.records import record_from
from holdfast.core.base.values import Amount, Digest, EventNo, Height, LeaseId
from holdfast.core.job.model import Job, earliest_read_height, pay_of
from holdfast.core.job.quorum import QUORUM, Payment, Vote, replica_ids
from holdfast.core.lease.input_claims import contradiction_events
from holdfast.core.lease.model import HasLeases, Lease
from holdfast.core.lease.quorum import close_leases, fail_quorum, is_quorum_unreachable, parent_job
from holdfast.core.proof.envelope import Envelope, ProofBody, declared_media_type, link_of, quorum_body, unpack
from holdfast.core.proof.messages import ProofAccepted, ProofRefused, RecordVerdict, VoteCast, nullifier_key
from holdfast.core.proof.model import QUORUM_MINORITY, REASONS_MAX
from holdfast.core.proof.nullifier_link import (
    PROOF_TYPES,
    hot_output,
    live_nullifiers,
    refuse_conflict,
    why_not_linked,
)
from holdfast.core.provider import health, sla
from holdfast.core.provider.messages import HealthChanged
from holdfast.core.queue.apply import QUORUM_REACHED


def record_vote(state: HasLeases, command: RecordVerdict, lease: Lease, replica: Job, now_ms: int) -> Answer:
    """LEA-009: one more vote; with it the job is resolved, or has failed, or waits for the others."""
    parent = parent_job(state, replica)
    cast = _make_vote_cast(parent, replica, lease, command.reasons[:REASONS_MAX], now_ms)
    votes = [*state.quorums[parent.id].votes, make_vote(cast, EventNo(state.last_event + 1))]
    agreeing = _votes_for(votes, cast.digest)
    if len(agreeing) < parent.quorum_n:
        ended = (
            fail_quorum(state, parent, now_ms, lease.id)
            if is_quorum_unreachable(state, parent, votes, excluding=replica.id)
            else ()
        )
        return Decided((cast, *ended))
    envelope = quorum_envelope(parent, agreeing)
    nullifiers = live_nullifiers(state, envelope, parent)
    if refusal := why_not_linked(state, parent.id, envelope, nullifiers):
        return refusal
    output, attachments = hot_output(command)
    accepted = replace(
        _accept_quorum(state, parent, agreeing, envelope, nullifiers[0], now_ms),
        reasons=f"{len(agreeing)} of {parent.quorum_m} agree, {len(votes)} were counted",
        output=output,
        da_commitment=command.da_commitment,
        media_type=declared_media_type(unpack(state.submissions[lease.id])),
    )
    others = close_leases(state, parent, QUORUM_REACHED, now_ms, excluding=lease.id)
    rewarded = (health.on_success(state, state.providers[vote.provider_id], now_ms) for vote in agreeing)
    judged = (
        *chain.from_iterable(rewarded),
        *_penalize_others(state, parent, votes, agreeing, now_ms),
        *contradiction_events(state, parent, now_ms),
    )
    return Decided((cast, *others, accepted, *judged), attachments)


def quorum_envelope(parent: Job, agreeing: Iterable[Vote]) -> Envelope:
    """The proof by these votes; its body lists them in the order of their index."""
    votes = list(agreeing)
    voters = ((vote.index, vote.lease_id, vote.provider_id) for vote in votes)
    body = quorum_body(parent.id, parent.quorum_n, parent.quorum_m, votes[0].digest, votes[0].size, voters)
    return Envelope(PROOF_TYPES[parent.kind], QUORUM, body, b"")


def _make_vote_cast(parent: Job, replica: Job, lease: Lease, reasons: str, now_ms: int) -> VoteCast:
    assert lease.submitted is not None
    index = replica_ids(parent.id, parent.quorum_m).index(replica.id)
    return VoteCast(
        task_id=replica.id,
        parent=replica.parent,
        index=index,
        lease_id=lease.id,
        provider_id=lease.provider_id,
        digest=lease.submitted,
        size=lease.submitted_size,
        price=lease.price,
        method=replica.proof,
        reasons=reasons,
        ended_ms=now_ms,
    )


def make_vote(cast: VoteCast, number: EventNo) -> Vote:
    return record_from(Vote, cast, event=number)


def _votes_for(votes: Iterable[Vote], digest: Digest) -> list[Vote]:
    return sorted((vote for vote in votes if vote.digest == digest), key=lambda vote: vote.index)


def _accept_quorum(
    state: HasLeases, parent: Job, agreeing: list[Vote], envelope: Envelope, nullifier: Digest, now_ms: int
) -> ProofAccepted:
    """ESC-001: each that agrees is paid its share; the sum is never above the fee, the rest is refunded."""
    first = agreeing[0]
    paid = tuple(
        Payment(vote.index, state.providers[vote.provider_id].account, pay_of(parent, vote.price)) for vote in agreeing
    )
    charged = Amount(sum(payment.amount for payment in paid))
    return ProofAccepted(
        task_id=parent.id,
        lease_id=LeaseId(b""),
        provider_id=first.provider_id,
        nullifier=nullifier,
        digest=first.digest,
        size=first.size,
        payee=paid[0].account,
        charged=charged,
        ended_ms=now_ms,
        expires_at=parent.expires_height or Height(parent.height + state.policy.result.result_ttl_blocks),
        method=QUORUM,
        link=link_of(envelope),
        caller=parent.caller,
        kind=parent.kind.value,
        earliest=earliest_read_height(parent),
        height=state.open_height,
        paid=paid,
        is_public=bool(parent.is_public),
    )


def _penalize_others(
    state: HasLeases, parent: Job, votes: list[Vote], agreeing: list[Vote], now_ms: int
) -> list[Event]:
    """LEA-009: votes for another digest are recorded with their reason and cost health.

    A part of the stake only where policy is set so.
    """
    digest, events, rules = agreeing[0].digest, list[Event](), state.policy.provider
    for vote in (vote for vote in votes if vote.digest != digest):
        id_ = replica_ids(parent.id, parent.quorum_m)[vote.index]
        events.append(
            record_from(
                ProofRefused,
                vote,
                task_id=id_,
                method=QUORUM,
                verdict=QUORUM_MINORITY,
                reasons=f"{len(agreeing)} of {parent.quorum_m} came to {digest.hex()}",
                at_ms=now_ms,
            )
        )
        events.append(HealthChanged(vote.provider_id, -rules.quorum_minority_decay_ppm, QUORUM_MINORITY, now_ms))
        if rules.quorum_minority_slashes:
            events += sla.on_offence(state, state.providers[vote.provider_id], QUORUM_MINORITY, now_ms)
    return events


def answer_repeated_vote(state: HasLeases, body: ProofBody) -> Decided | Refused | None:
    """RCV-002: the same vote again is a repeat; another vote of the same lease is in conflict."""
    replica = state.queue.jobs.get(body.task_id)
    if replica is None or not replica.parent:
        return None
    for vote in state.quorums[replica.parent].votes:
        if vote.lease_id == body.lease_id:
            return Decided((), repeat_of=vote.event) if vote.digest == body.output_digest else refuse_conflict(body)
    return None


def vote_keys(state: HasLeases, lease: Lease, replica: Job) -> tuple[bytes, ...]:
    """The claims that a vote depends on: the nullifiers of its job, where this vote decides it (ENG-005)."""
    parent = parent_job(state, replica)
    cast = _make_vote_cast(parent, replica, lease, "", 0)
    agreeing = _votes_for([*state.quorums[parent.id].votes, make_vote(cast, EventNo(0))], cast.digest)
    if len(agreeing) < parent.quorum_n:
        return ()
    return tuple(map(nullifier_key, live_nullifiers(state, quorum_envelope(parent, agreeing), parent)))
