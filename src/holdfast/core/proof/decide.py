"""A submission and the verdict on it (RCV-001, RCV-002, PRF-003): one command, whichever API it came through."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, Event, NeedsClaims
from holdfast.core.base.values import KIND_NAMES, Amount, Digest, EventNo, Height, LeaseId, ProviderId
from holdfast.core.index import unique_ids
from holdfast.core.job.model import Job, earliest_read_height, pay_of
from holdfast.core.job.spec import ATTESTED, has_metrics, why_metrics_unmet
from holdfast.core.lease.decide import ATTEMPTS_EXHAUSTED, failure_events, why_expired, why_not_held
from holdfast.core.lease.input_claims import contradiction_events
from holdfast.core.lease.messages import CompletionSubmitted, close_without_penalty
from holdfast.core.lease.model import HasLeases, Lease, LeaseStatus, has_lapsed
from holdfast.core.lease.quorum import give_up_events, parent_job
from holdfast.core.proof import votes
from holdfast.core.proof.envelope import ProofBody, declared_media_type, link_of, pack, read_body, unpack
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
    hot_output,
    live_nullifiers,
    refuse_conflict,
    why_not_linked,
)
from holdfast.core.provider import health, sla
from holdfast.core.queue import retry
from holdfast.core.queue.messages import JobExpired, JobFailed


def submit_completions(state: HasLeases, commands: Sequence[SubmitCompletion], now_ms: int) -> list[Answer]:
    """RCV-001: submissions of different leases do not depend on each other; those of replicas do, by their TTL."""
    answers, jobs, submitted = list[Answer](), state.queue.jobs, set[LeaseId]()
    for command in commands:
        if command.lease_id in submitted:
            break
        answer = _submit_completion(state, command, now_ms)
        answers.append(answer)
        if isinstance(answer, Decided) and answer.events:
            event = answer.events[0]
            if type(event) is not CompletionSubmitted or jobs[state.leases.by_id[event.lease_id].job_id].parent:
                break
            submitted.add(event.lease_id)
        elif isinstance(answer, NeedsClaims):
            break
    return answers


def _submit_completion(state: HasLeases, command: SubmitCompletion, now_ms: int) -> Answer:
    """RCV-001: only for a live lease, by its holder, before the deadline; it freezes the lease."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused):
        return body
    if (body.lease_id, body.provider) != (command.lease_id, command.provider_id):
        return Refused("PRV-003", "the proof is of another lease or another provider", name="Forbidden")
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or has_lapsed(lease, now_ms):
        return _answer_late(state, command, body, now_ms)
    if lease.provider_id != command.provider_id or lease.job_id != body.task_id:
        return Refused("PRV-003", f"lease {command.lease_id.hex()} is another provider's", name="Forbidden")
    if lease.submitted is not None:
        return _answer_repeat(state, lease, body.output_digest, now_ms)
    if refusal := why_not_held(state, lease, now_ms):
        return refusal
    if not command.is_output_held:  # the lease came back when undurable memory was discarded (ENG-002)
        return Refused("RCV-001", f"the node does not hold the output of lease {lease.id.hex()}", "submit it again")
    job = state.queue.jobs[lease.job_id]
    if (command.envelope.method, command.envelope.type) != (job.proof, PROOF_TYPES[job.kind]):
        message = f"the job requires proof by {job.proof!r} of type {PROOF_TYPES[job.kind].value}"
        return Refused("PRF-002", message, name="InvalidParams")
    submitted = CompletionSubmitted(lease.id, body.output_digest, body.output_size, pack(command.envelope), now_ms)
    return Decided((submitted,))


def _answer_late(state: HasLeases, command: SubmitCompletion, body: ProofBody, now_ms: int) -> Answer:
    """RES-001, RCV-002: the proof that the task is linked to is a repeat; any other one is in conflict with it."""
    ended = _ended_lease(state, command, body)
    if ended is not None and ended.submitted not in (None, body.output_digest):
        return _answer_repeat(state, ended, body.output_digest, now_ms)
    if (known := votes.answer_repeated_vote(state, body)) is not None:
        return known
    if lacking := state.claims.lacking((link_key(body.task_id),)):
        return NeedsClaims(lacking)
    linked = TaskLinked(body.task_id, link_of(command.envelope))
    first = unique_ids.check_unique(state.claims, link_key(body.task_id), linked)
    if isinstance(first, Decided):
        return first
    if first is not None:
        return refuse_conflict(body)
    return Refused(
        "RCV-002", f"lease {body.lease_id.hex()} is over", "its job was assigned to others or has ended", "LeaseLost"
    )


def _ended_lease(state: HasLeases, command: SubmitCompletion, body: ProofBody) -> Lease | None:
    """The lease that is over, of this provider: its row or what memory has of it."""
    known = (*state.attempts.get(body.task_id, ()), *((command.record,) if command.record is not None else ()))
    names = (command.lease_id, command.provider_id)
    return next((lease for lease in known if (lease.id, lease.provider_id) == names), None)


def _answer_repeat(state: HasLeases, lease: Lease, digest: Digest, now_ms: int) -> Answer:
    """RCV-002: the same digest again is a repeat; another digest is evidence of equivocation."""
    if lease.submitted == digest:
        return Decided((), repeat_of=lease.event)
    if lacking := state.claims.lacking((equivocation_key(lease.id),)):
        return NeedsClaims(lacking)
    if (known := state.claims.event_of(equivocation_key(lease.id))) is not None:
        return Decided((), repeat_of=known)
    if lease.ended_ms is not None and now_ms >= lease.ended_ms + state.policy.ttl.tombstone_ms:
        return Refused("RCV-002", f"lease {lease.id.hex()} is long over", "its result stays", "LeaseLost")
    ignored = CompletionIgnored(lease.id, lease.provider_id, digest, EQUIVOCATION, is_penalized=True)
    provider = state.providers[lease.provider_id]
    return Decided((ignored, *(sla.on_offence(state, provider, EQUIVOCATION, now_ms) if provider.at_stake else ())))


def record_verdicts(state: HasLeases, commands: Sequence[RecordVerdict], now_ms: int) -> list[Answer]:
    """PRF-003: accepted completes the job and puts the proof into the open block; refused counts as PROOF_INVALID.

    Accepted proofs of different leases do not depend on each other, unless they change the health of one provider.
    A refused one and a vote depend on what came before.
    """
    answers, number, judged, changed = list[Answer](), state.last_event, set[LeaseId](), set[ProviderId]()
    by_id, jobs = state.leases.by_id, state.queue.jobs
    for command in commands:
        lease = by_id.get(command.lease_id)
        if lease is None or lease.submitted is None or command.digest not in (None, lease.submitted):
            answers.append(Decided((), repeat_of=number))
            continue
        job = jobs[lease.job_id]
        is_accepted = command.is_good and not job.parent and not has_metrics(job.requirements)
        is_alone = not is_accepted or job.id in state.input_claims  # it changes other providers, too
        if answers and (is_alone or lease.id in judged or lease.provider_id in changed):
            break
        answer = (_accept if is_accepted else _judge_alone)(state, command, lease, job, now_ms)
        answers.append(answer)
        if is_alone or type(answer) is NeedsClaims:
            break
        if type(answer) is Decided:
            number = EventNo(number + len(answer.events))
            judged.add(lease.id)
            if len(answer.events) > 1:
                changed.add(lease.provider_id)
    return answers


def _accept(state: HasLeases, command: RecordVerdict, lease: Lease, job: Job, now_ms: int) -> Answer:
    envelope = unpack(state.submissions[lease.id])
    nullifiers = live_nullifiers(state, envelope, job)
    if refusal := why_not_linked(state, job.id, envelope, nullifiers):
        return refusal
    assert lease.submitted is not None
    provider, reasons = state.providers[lease.provider_id], command.reasons[:REASONS_MAX]
    expires_at = job.expires_height or job.height + state.policy.result.result_ttl_blocks
    output, attachments = hot_output(command)
    accepted = ProofAccepted(  # by position: by name takes several times as long, and every job needs it
        job.id, lease.id, provider.id, nullifiers[0], lease.submitted, lease.submitted_size, provider.account,
        Amount(pay_of(job, lease.price)), now_ms, Height(expires_at), envelope.method, reasons, output,
        link_of(envelope), job.caller, KIND_NAMES[job.kind], earliest_read_height(job), command.da_commitment,
        state.open_height, (), bool(job.is_public), declared_media_type(envelope),
    )  # fmt: skip
    wrong = () if job.proof == ATTESTED else contradiction_events(state, job, now_ms)
    return Decided((accepted, *health.on_success(state, provider, now_ms), *wrong), attachments)


def _judge_alone(state: HasLeases, command: RecordVerdict, lease: Lease, job: Job, now_ms: int) -> Answer:
    """PRV-005: a good proof whose metrics are not what the job asked for is not paid, and blames no provider."""
    body = read_body(unpack(state.submissions[lease.id]).body)
    if command.is_good and isinstance(body, ProofBody) and (unmet := why_metrics_unmet(job.requirements, body.metrics)):
        command = RecordVerdict(lease.id, False, unmet, fault=VerifierFault.METRICS_UNMET)
    if not command.is_good:
        return Decided(_reject_proof(state, lease, command, now_ms))
    return (votes.record_vote if job.parent else _accept)(state, command, lease, job, now_ms)


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
        closed, *rest = _retry_without_penalty(state, lease, job, command, now_ms)
        return closed, refused, *rest
    closed, *rest = failure_events(state, lease, LeaseStatus.CANCELLED, PROOF_INVALID, now_ms)
    penalty = sla.on_offence(state, state.providers[lease.provider_id], PROOF_INVALID, now_ms)
    return closed, refused, *penalty, *rest


def _retry_without_penalty(
    state: HasLeases, lease: Lease, job: Job, command: RecordVerdict, now_ms: int
) -> tuple[Event, ...]:
    """PRF-002: a verifier's fault is not a failure of the provider. The job is retried a bounded number of times."""
    retrying, parent = state.policy.retry, parent_job(state, job)
    wait_ms = retry.delay_ms(job.kind, job.id, job.attempts, retrying)
    fault, detail = command.fault, command.reasons[:REASONS_MAX]
    closed = msgspec.structs.replace(close_without_penalty(lease, fault, now_ms, wait_ms), detail=detail)
    over: JobFailed | JobExpired | None = None
    if fault is VerifierFault.NO_VERIFIER:
        over = JobFailed(job.id, fault, now_ms)
    elif job.attempts >= retrying.failures_max * (1 + parent.requeues):  # each requeue allows as many again
        over = JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
    elif why := why_expired(state, parent, now_ms + wait_ms):
        over = JobExpired(job.id, why, now_ms)
    return (closed,) if over is None else (closed, *give_up_events(state, lease, job, over, now_ms))


def verdict_keys(state: HasLeases, command: RecordVerdict) -> tuple[bytes, ...]:
    """The claims that a verdict depends on: the nullifiers (ENG-005). A job that is not done has no link yet."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return ()
    job = state.queue.jobs[lease.job_id]
    if job.parent:
        return votes.vote_keys(state, lease, job)
    return tuple(map(nullifier_key, live_nullifiers(state, unpack(state.submissions[lease.id]), job)))


def submission_keys(state: HasLeases, command: SubmitCompletion) -> tuple[bytes, ...]:
    """The claim that a submission depends on: a late one on its task's link, a second one on earlier equivocation."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is not None and lease.submitted is not None:
        return (equivocation_key(lease.id),)
    body = read_body(command.envelope.body)
    return () if isinstance(body, Refused) else (link_key(body.task_id), equivocation_key(command.lease_id))
