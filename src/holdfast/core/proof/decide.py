"""A submission and the verdict on it (RCV-001, RCV-002, PRF-003): one command, whichever API it came through."""

from __future__ import annotations

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, Event
from holdfast.core.base.values import KIND_NAMES, Amount, Digest, Height
from holdfast.core.index import unique_ids
from holdfast.core.job.model import Job, earliest_read_height
from holdfast.core.lease.decide import ATTEMPTS_EXHAUSTED, failure_events, why_expired, why_not_held
from holdfast.core.lease.messages import CompletionSubmitted, close_without_penalty
from holdfast.core.lease.model import HasLeases, Lease, LeaseStatus, has_lapsed
from holdfast.core.lease.quorum import give_up_events, parent_job
from holdfast.core.proof import votes
from holdfast.core.proof.consequences import penalize, reward
from holdfast.core.proof.envelope import Envelope, ProofBody, link_of, pack, read_body, unpack
from holdfast.core.proof.messages import (
    CompletionIgnored,
    ProofAccepted,
    ProofRefused,
    RecordVerdict,
    SubmitCompletion,
    TaskLinked,
    VerifierFault,
    equivocation_key,
    link_key,
    nullifier_key,
)
from holdfast.core.proof.model import EQUIVOCATION, PROOF_INVALID, REASONS_MAX
from holdfast.core.proof.nullifier_link import (
    PROOF_TYPES,
    attach_output,
    newest_nullifier,
    refuse_conflict,
    why_not_linked,
)
from holdfast.core.queue import retry
from holdfast.core.queue.messages import JobExpired, JobFailed


def submit_completion(state: HasLeases, command: SubmitCompletion, now_ms: int) -> Decided | Refused:
    """RCV-001: only for a live lease, by its holder, before the deadline; it freezes the lease."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused):
        return body
    if (body.lease_id, body.provider) != (command.lease_id, command.provider_id):
        return Refused("PRV-003", "the proof is of another lease or another provider", name="Forbidden")
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or has_lapsed(lease, now_ms):
        return _answer_late(state, command.envelope, body)
    if lease.provider_id != command.provider_id or lease.job_id != body.task_id:
        return Refused("PRV-003", f"lease {command.lease_id.hex()} is another provider's", name="Forbidden")
    if lease.submitted is not None:
        return _answer_repeat(state, lease, body.output_digest, now_ms)
    if refusal := why_not_held(state, lease, now_ms):
        return refusal
    job = state.queue.jobs[lease.job_id]
    if (command.envelope.method, command.envelope.type) != (job.proof, PROOF_TYPES[job.kind]):
        message = f"the job requires proof by {job.proof!r} of type {PROOF_TYPES[job.kind].value}"
        return Refused("PRF-002", message, name="InvalidParams")
    submitted = CompletionSubmitted(lease.id, body.output_digest, body.output_size, pack(command.envelope), now_ms)
    return Decided((submitted,))


def _answer_late(state: HasLeases, envelope: Envelope, body: ProofBody) -> Decided | Refused:
    """RES-001, RCV-002: the proof that the task is linked to is a repeat; any other one is in conflict with it."""
    if (known := votes.answer_repeated_vote(state, body)) is not None:
        return known
    linked = TaskLinked(body.task_id, link_of(envelope))
    first = unique_ids.check_unique(state.claims, link_key(body.task_id), linked)
    if isinstance(first, Decided):
        return first
    if first is not None:
        return refuse_conflict(body)
    return Refused(
        "RCV-002", f"lease {body.lease_id.hex()} is over", "its job was assigned to others or has ended", "LeaseLost"
    )


def _answer_repeat(state: HasLeases, lease: Lease, digest: Digest, now_ms: int) -> Decided | Refused:
    """RCV-002: the same digest again is a repeat; another digest is evidence of equivocation."""
    if lease.submitted == digest:
        return Decided((), repeat_of=lease.event)
    if (known := state.claims.event_of(equivocation_key(lease.id))) is not None:
        return Decided((), repeat_of=known)
    ignored = CompletionIgnored(lease.id, lease.provider_id, digest, EQUIVOCATION, is_penalized=True)
    return Decided((ignored, *penalize(state, lease, EQUIVOCATION, now_ms)))


def record_verdict(state: HasLeases, command: RecordVerdict, now_ms: int) -> Decided | Refused:
    """PRF-003: accepted completes the job and puts the proof into the open block; refused counts as PROOF_INVALID."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return Decided((), repeat_of=state.last_event)
    if not command.is_good:
        return Decided(_reject_proof(state, lease, command, now_ms))
    job = state.queue.jobs[lease.job_id]
    if job.parent:
        return votes.record_vote(state, command, lease, job, now_ms)
    envelope = unpack(state.submissions[lease.id])
    accepted = _accept_proof(state, lease, job, envelope, command.reasons[:REASONS_MAX], now_ms)
    accepted, attachments = attach_output(accepted, command)
    if refusal := why_not_linked(state, accepted, envelope):
        return refusal
    return Decided((accepted, *reward(state, lease, now_ms)), attachments)


def _reject_proof(state: HasLeases, lease: Lease, command: RecordVerdict, now_ms: int) -> tuple[Event, ...]:
    """The events of a refused proof: the lease ends, the verdict is recorded, then follow provider and job."""
    job = state.queue.jobs[lease.job_id]
    verdict = command.fault or PROOF_INVALID
    assert lease.submitted is not None
    refused = ProofRefused(
        task_id=job.id,
        lease_id=lease.id,
        provider_id=lease.provider_id,
        method=job.proof,
        digest=lease.submitted,
        verdict=verdict,
        reasons=command.reasons[:REASONS_MAX],
        at_ms=now_ms,
    )
    if command.fault:
        closed, *rest = _retry_without_penalty(state, lease, job, command.fault, now_ms)
        return closed, refused, *rest
    closed, *rest = failure_events(state, lease, LeaseStatus.CANCELLED, PROOF_INVALID, now_ms)
    return closed, refused, *penalize(state, lease, PROOF_INVALID, now_ms), *rest


def _retry_without_penalty(
    state: HasLeases, lease: Lease, job: Job, fault: VerifierFault, now_ms: int
) -> tuple[Event, ...]:
    """PRF-002: a verifier's fault is not a failure of the provider. The job is retried a bounded number of times."""
    retrying = state.policy.retry
    wait_ms = retry.delay_ms(job.kind, job.id, job.attempts, retrying)
    closed = close_without_penalty(lease, fault, now_ms, now_ms + wait_ms)
    over: JobFailed | JobExpired | None = None
    if fault is VerifierFault.NO_VERIFIER:
        over = JobFailed(job.id, fault, now_ms)
    elif job.attempts >= retrying.failures_max * (
        1 + parent_job(state, job).requeues
    ):  # each requeue allows as many again
        over = JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
    elif why := why_expired(state, parent_job(state, job), now_ms + wait_ms):
        over = JobExpired(job.id, why, now_ms)
    return (closed,) if over is None else (closed, *give_up_events(state, lease, job, over, now_ms))


def _accept_proof(
    state: HasLeases, lease: Lease, job: Job, envelope: Envelope, reasons: str, now_ms: int
) -> ProofAccepted:
    nullifier = newest_nullifier(state, envelope, job)
    assert lease.submitted is not None
    return ProofAccepted(
        task_id=job.id,
        lease_id=lease.id,
        provider_id=lease.provider_id,
        nullifier=nullifier,
        digest=lease.submitted,
        size=lease.submitted_size,
        payee=state.providers[lease.provider_id].account,
        charged=Amount(min(job.max_fee, job.units * lease.price)),
        ended_ms=now_ms,
        expires_at=job.expires_height or Height(job.height + state.policy.result.result_ttl_blocks),
        method=envelope.method,
        reasons=reasons,
        link=link_of(envelope),
        caller=job.caller,
        kind=KIND_NAMES[job.kind],
        earliest=earliest_read_height(job),
        height=state.open_height,
    )


def verdict_key(state: HasLeases, command: RecordVerdict) -> bytes | None:
    """The claim that a verdict depends on: the nullifier (ENG-005). A job that is not done has no link yet."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return None
    job = state.queue.jobs[lease.job_id]
    if job.parent:
        return votes.vote_key(state, lease, job)
    return nullifier_key(newest_nullifier(state, unpack(state.submissions[lease.id]), job))


def submission_key(state: HasLeases, command: SubmitCompletion) -> bytes | None:
    """The claim that a submission depends on: a late one on its task's link, a second one on earlier equivocation."""
    if (lease := state.leases.by_id.get(command.lease_id)) is not None:
        return equivocation_key(lease.id) if lease.submitted is not None else None
    body = read_body(command.envelope.body)
    return None if isinstance(body, Refused) else link_key(body.task_id)
