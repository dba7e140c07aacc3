"""What the replicas of a job say (LEA-009, PRF-002 `quorum`): each good proof is a vote, n equal ones resolve the job.

The proof of the job is made here, of the votes that agree: anybody who knows them makes the same one.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.event import Decided, Event
from holdfast.core.job.quorum import QUORUM, Payment, Vote, replica_ids, share_of
from holdfast.core.job.record import Job, JobAct, earliest_read_height
from holdfast.core.lease import apply as lend
from holdfast.core.lease.quorum import QUORUM_REACHED, closed, is_lost, lost, whole
from holdfast.core.lease.record import Lease, LeaseAct, Leasing
from holdfast.core.proof.acts import QUORUM_MINORITY, REASONS_MAX, Judge, ProofAccepted, ProofRefused, nullifier_key
from holdfast.core.proof.envelope import Body, Envelope, link_of, quorum_body
from holdfast.core.proof.following import outvoted
from holdfast.core.proof.linking import TYPES, conflict, newest_nullifier, why_not_linked, with_output
from holdfast.core.provider import health
from holdfast.core.provider.apply import touch
from holdfast.core.queue import apply as queue
from holdfast.core.queue import replicas
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, Digest, EventNo, Height, LeaseId, ProviderId, TaskId


class VoteCast(Event, frozen=True, tag=61):
    """The proof of a replica is good: what it came to counts for its job."""

    task_id: TaskId
    """The replica."""
    parent: TaskId
    index: int
    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    size: int
    price: int
    method: str
    reasons: str
    ended_ms: int


def counted(state: Leasing, command: Judge, lease: Lease, replica: Job, now_ms: int) -> Decided | Refused:
    """LEA-009: one vote more; with it the job may be resolved, or lost, or wait for the others."""
    parent = whole(state, replica)
    cast = _cast(parent, replica, lease, command.reasons[:REASONS_MAX], now_ms)
    votes = [*state.quorums[parent.id].votes, _vote(cast, EventNo(state.last_event + 1))]
    agreeing = _agreeing(votes, cast.digest)
    if len(agreeing) < parent.quorum_n:
        ended = lost(state, parent, now_ms, lease.id) if is_lost(state, parent, votes, but=replica.id) else ()
        return Decided((cast, *ended))
    envelope = envelope_of(parent, agreeing)
    accepted, attachments = with_output(_accepted(state, parent, agreeing, envelope, len(votes), now_ms), command)
    if no := why_not_linked(state, accepted, envelope):
        return no
    others = closed(state, parent, QUORUM_REACHED, now_ms, but=lease.id)
    judged = (*_praised(state, agreeing, now_ms), *_outvoted(state, parent, votes, agreeing, now_ms))
    return Decided((cast, *others, accepted, *judged), attachments)


def envelope_of(parent: Job, agreeing: Iterable[Vote]) -> Envelope:
    """The proof that these votes are; its body names them in the order of their index."""
    some = list(agreeing)
    told = (parent.quorum_n, parent.quorum_m, some[0].digest, some[0].size)
    body = quorum_body(parent.id, *told, ((vote.index, vote.lease_id, vote.provider_id) for vote in some))
    return Envelope(TYPES[parent.kind], QUORUM, body, b"")


def _cast(parent: Job, replica: Job, lease: Lease, reasons: str, now_ms: int) -> VoteCast:
    assert lease.submitted is not None
    index = replica_ids(parent.id, parent.quorum_m).index(replica.id)
    whose = (replica.id, replica.parent, index, lease.id, lease.provider_id)
    return VoteCast(*whose, lease.submitted, lease.submitted_size, lease.price, replica.proof, reasons, now_ms)


def _vote(cast: VoteCast, number: EventNo) -> Vote:
    whose = (number, cast.index, cast.lease_id, cast.provider_id)
    return Vote(*whose, cast.digest, cast.size, cast.price)


def _agreeing(votes: Iterable[Vote], digest: Digest) -> list[Vote]:
    return sorted((vote for vote in votes if vote.digest == digest), key=lambda vote: vote.index)


def _accepted(
    state: Leasing, parent: Job, agreeing: list[Vote], envelope: Envelope, votes: int, now_ms: int
) -> ProofAccepted:
    """ESC-001: each that agrees is paid its share; the sum is never above the fee, the rest goes back."""
    first = agreeing[0]
    paid = tuple(_payment(state, parent, vote) for vote in agreeing)
    charged = Amount(sum(each.amount for each in paid))
    return ProofAccepted(
        parent.id,
        LeaseId(b""),
        first.provider_id,
        newest_nullifier(state, envelope, parent),
        first.digest,
        first.size,
        paid[0].account,
        charged,
        now_ms,
        parent.expires_height or Height(parent.height + state.policy.result.result_ttl_blocks),
        QUORUM,
        f"{len(agreeing)} of {parent.quorum_m} agree, {votes} were counted",
        link=link_of(envelope),
        caller=parent.caller,
        kind=parent.kind.value,
        earliest=earliest_read_height(parent),
        height=state.open_height,
        paid=paid,
    )


def _payment(state: Leasing, parent: Job, vote: Vote) -> Payment:
    amount = share_of(parent.max_fee, parent.quorum_n, parent.units, vote.price)
    return Payment(vote.index, AccountId(state.providers[vote.provider_id].account), amount)


def _praised(state: Leasing, agreeing: list[Vote], now_ms: int) -> list[Event]:
    found: list[Event] = []
    for vote in agreeing:
        found += health.praised(state, state.providers[vote.provider_id], now_ms)
    return found


def _outvoted(state: Leasing, parent: Job, votes: list[Vote], agreeing: list[Vote], now_ms: int) -> list[Event]:
    """Who said something else: it is kept with its reason, and the SLA engine is told."""
    digest, found = agreeing[0].digest, list[Event]()
    for vote in (vote for vote in votes if vote.digest != digest):
        id_ = replica_ids(parent.id, parent.quorum_m)[vote.index]
        says = f"{len(agreeing)} of {parent.quorum_m} came to {digest.hex()}"
        names = (id_, vote.lease_id, vote.provider_id, QUORUM, vote.digest)
        found.append(ProofRefused(*names, QUORUM_MINORITY, says, now_ms))
        found += outvoted(state, state.providers[vote.provider_id], QUORUM_MINORITY, now_ms)
    return found


def counted_before(state: Leasing, body: Body) -> Decided | Refused | None:
    """RCV-002: a vote handed in again is answered as the first time, another one of the same replica is in conflict."""
    replica = state.queue.jobs.get(body.task_id)
    if replica is None or not replica.parent:
        return None
    for vote in state.quorums[replica.parent].votes:
        if vote.lease_id == body.lease_id:
            return Decided((), since=vote.event) if vote.digest == body.output_digest else conflict(body)
    return None


def verdict_key(state: Leasing, lease: Lease, replica: Job) -> bytes | None:
    """The claim that a vote depends on: the nullifier of its job, where it decides (ENG-005)."""
    parent = whole(state, replica)
    cast = _cast(parent, replica, lease, "", 0)
    agreeing = _agreeing([*state.quorums[parent.id].votes, _vote(cast, EventNo(0))], cast.digest)
    if len(agreeing) < parent.quorum_n:
        return None
    return nullifier_key(newest_nullifier(state, envelope_of(parent, agreeing), parent))


# ------------------------------------------------------------------------------------------------ applying


def apply_vote(state: Leasing, event: VoteCast) -> None:
    """RCV-001: the replica and its lease are COMPLETED; whether it was worth anything is known later."""
    lend.end(state, event.lease_id, LeaseAct.COMPLETE, "", event.ended_ms)
    queue.end(state, event.task_id, JobAct.ACCEPT, "", event.ended_ms)
    state.quorums[event.parent].votes.append(_vote(event, state.last_event))
    touch(state, state.providers[event.provider_id])


def apply_agreed(state: Leasing, event: ProofAccepted) -> None:
    """PRF-003: the job is COMPLETED and its replicas end with it; who agreed has done good work."""
    job, votes = state.queue.jobs[event.task_id], state.quorums[event.task_id].votes
    replicas.allot(state, job, event.paid)
    queue.end(state, event.task_id, JobAct.AGREE, "", event.ended_ms)
    agreeing = {each.index for each in event.paid}
    for vote in votes:
        if vote.index in agreeing:
            provider = state.providers[vote.provider_id]
            provider.completed += 1
            provider.failures_in_row = 0
            touch(state, provider)
