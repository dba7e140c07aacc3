"""Handing a result in, and the verdict on it (RCV-001, RCV-002, PRF-003): one command, whichever door it came by."""

from __future__ import annotations

from holdfast.core import claim, retry
from holdfast.core.event import Decided, Event
from holdfast.core.job.record import Job, earliest_read_height
from holdfast.core.lease.acts import CompletionSubmitted, JobExpired, JobFailed, cancelled
from holdfast.core.lease.decide import ATTEMPTS_EXHAUSTED, failed, why_ended, why_not_held
from holdfast.core.lease.quorum import given_up, whole
from holdfast.core.lease.record import Lease, LeaseStatus, Leasing, has_lapsed
from holdfast.core.proof import votes
from holdfast.core.proof.acts import (
    EQUIVOCATION,
    PROOF_INVALID,
    REASONS_MAX,
    CompletionIgnored,
    Judge,
    ProofAccepted,
    ProofRefused,
    Submit,
    TaskLinked,
    Trouble,
    equivocation_key,
    link_key,
    nullifier_key,
)
from holdfast.core.proof.envelope import Body, Envelope, link_of, pack, read_body, unpack
from holdfast.core.proof.following import praise, sentence
from holdfast.core.proof.linking import TYPES, conflict, newest_nullifier, why_not_linked, with_output
from holdfast.core.refusal import Refused
from holdfast.core.values import KIND_NAMES, Amount, Digest, Height


def submit(state: Leasing, command: Submit, now_ms: int) -> Decided | Refused:
    """RCV-001: only for a live lease, by its holder, before the deadline; it freezes the lease."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused):
        return body
    if (body.lease_id, body.provider) != (command.lease_id, command.provider_id):
        return Refused("PRV-003", "the proof is of another lease or another provider", name="Forbidden")
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or has_lapsed(lease, now_ms):
        return _late(state, command.envelope, body)
    if lease.provider_id != command.provider_id or lease.job_id != body.task_id:
        return Refused("PRV-003", f"lease {command.lease_id.hex()} is not this one's", name="Forbidden")
    if lease.submitted is not None:
        return _again(state, lease, body.output_digest, now_ms)
    if no := why_not_held(state, lease, now_ms):
        return no
    job = state.queue.jobs[lease.job_id]
    if (command.envelope.method, command.envelope.type) != (job.proof, TYPES[job.kind]):
        says = f"the job asks for proof by {job.proof!r} of type {TYPES[job.kind].value}"
        return Refused("PRF-002", says, name="InvalidParams")
    told = (body.output_digest, body.output_size, pack(command.envelope), now_ms)
    return Decided((CompletionSubmitted(lease.id, *told),))


def _late(state: Leasing, envelope: Envelope, body: Body) -> Decided | Refused:
    """RES-001, RCV-002: the very proof that the task is linked to is a repeat; any other one is in conflict with it."""
    if (known := votes.counted_before(state, body)) is not None:
        return known
    linked = TaskLinked(body.task_id, link_of(envelope))
    first = claim.why_not_first(state.claims, link_key(body.task_id), linked)
    if isinstance(first, Decided):
        return first
    if first is not None:
        return conflict(body)
    return Refused("RCV-002", f"lease {body.lease_id.hex()} is over", "the job went on without it", "LeaseLost")


def _again(state: Leasing, lease: Lease, digest: Digest, now_ms: int) -> Decided | Refused:
    """RCV-002: the same again is answered as the first; another digest is evidence of equivocation."""
    if lease.submitted == digest:
        return Decided((), since=lease.event)
    if (known := state.claims.event_of(equivocation_key(lease.id))) is not None:
        return Decided((), since=known)
    ignored = CompletionIgnored(lease.id, lease.provider_id, digest, EQUIVOCATION, is_sentenced=True)
    return Decided((ignored, *sentence(state, lease, EQUIVOCATION, now_ms)))


def judge(state: Leasing, command: Judge, now_ms: int) -> Decided | Refused:
    """PRF-003: accepted completes the job and puts the proof into the open block; refused counts as PROOF_INVALID."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return Decided((), since=state.last_event)
    if not command.is_good:
        return Decided(_refused(state, lease, command, now_ms))
    job = state.queue.jobs[lease.job_id]
    if job.parent:
        return votes.counted(state, command, lease, job, now_ms)
    envelope = unpack(state.submissions[lease.id])
    accepted = _accepted(state, lease, job, envelope, command.reasons[:REASONS_MAX], now_ms)
    accepted, attachments = with_output(accepted, command)
    if no := why_not_linked(state, accepted, envelope):
        return no
    return Decided((accepted, *praise(state, lease, now_ms)), attachments)


def _refused(state: Leasing, lease: Lease, command: Judge, now_ms: int) -> tuple[Event, ...]:
    """What follows from a no: the lease ends first, then it is told why, then come job and provider."""
    job = state.queue.jobs[lease.job_id]
    verdict = command.trouble or PROOF_INVALID
    assert lease.submitted is not None
    names = (job.id, lease.id, lease.provider_id, job.proof, lease.submitted)
    refused = ProofRefused(*names, verdict, command.reasons[:REASONS_MAX], now_ms)
    if command.trouble:
        closed, *rest = _unblamed(state, lease, job, command.trouble, now_ms)
        return closed, refused, *rest
    closed, *rest = failed(state, lease, LeaseStatus.CANCELLED, PROOF_INVALID, now_ms)
    return closed, refused, *sentence(state, lease, PROOF_INVALID, now_ms), *rest


def _unblamed(state: Leasing, lease: Lease, job: Job, trouble: Trouble, now_ms: int) -> tuple[Event, ...]:
    """PRF-002: a verifier's own trouble is no failure of the provider. The job tries again, but not without end."""
    retrying = state.policy.retry
    wait_ms = retry.delay_ms(job.kind, job.id, job.attempts, retrying)
    closed = cancelled(lease, trouble, now_ms, now_ms + wait_ms)
    over: JobFailed | JobExpired | None = None
    if trouble is Trouble.NO_VERIFIER:
        over = JobFailed(job.id, trouble, now_ms)
    elif job.attempts >= retrying.failures_max * (
        1 + whole(state, job).requeues
    ):  # each requeueing allows as many again
        over = JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
    elif why := why_ended(state, whole(state, job), now_ms + wait_ms):
        over = JobExpired(job.id, why, now_ms)
    return (closed,) if over is None else (closed, *given_up(state, lease, job, over, now_ms))


def _accepted(state: Leasing, lease: Lease, job: Job, envelope: Envelope, reasons: str, now_ms: int) -> ProofAccepted:
    nullifier = newest_nullifier(state, envelope, job)
    assert lease.submitted is not None
    payee = state.providers[lease.provider_id].account
    charged = Amount(min(job.max_fee, job.units * lease.price))
    names = (job.id, lease.id, lease.provider_id, nullifier, lease.submitted, lease.submitted_size)
    expires_at = job.expires_height or Height(job.height + state.policy.result.result_ttl_blocks)
    whose = (link_of(envelope), job.caller, KIND_NAMES[job.kind], earliest_read_height(job), None, state.open_height)
    return ProofAccepted(*names, payee, charged, now_ms, expires_at, envelope.method, reasons, None, *whose)


def verdict_key(state: Leasing, command: Judge) -> bytes | None:
    """The claim that a verdict depends on: the nullifier (ENG-005). A job that is not done has no link yet."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return None
    job = state.queue.jobs[lease.job_id]
    if job.parent:
        return votes.verdict_key(state, lease, job)
    return nullifier_key(newest_nullifier(state, unpack(state.submissions[lease.id]), job))


def submission_key(state: Leasing, command: Submit) -> bytes | None:
    """The claim that it depends on: a late one on what its task is linked to, a second one on what was said before."""
    if (lease := state.leases.by_id.get(command.lease_id)) is not None:
        return equivocation_key(lease.id) if lease.submitted is not None else None
    body = read_body(command.envelope.body)
    return None if isinstance(body, Refused) else link_key(body.task_id)
