"""Handing a result in, and the verdict on it (RCV-001, RCV-002, PRF-003): one command, whichever door it came by."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import claim, retry
from holdfast.core.canon import live_versions
from holdfast.core.event import Attachment, Decided, Event, enclose
from holdfast.core.job.record import Job, earliest_read_height, ends_ms
from holdfast.core.lease.acts import CompletionSubmitted, JobExpired, JobFailed, LeaseClosed
from holdfast.core.lease.decide import ATTEMPTS_EXHAUSTED, TTL_OVER, failed, why_not_held
from holdfast.core.lease.record import Lease, LeaseStatus, Leasing, is_live
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
from holdfast.core.proof.envelope import (
    Body,
    Envelope,
    ProofType,
    link_of,
    pack,
    packed_nullifier,
    read_body,
    unpack,
    window_of,
)
from holdfast.core.proof.following import praise, sentence
from holdfast.core.refusal import Refused
from holdfast.core.values import Amount, Digest, Height, Kind

TYPES: Final = {Kind.AI: ProofType.AI, Kind.QUANTUM: ProofType.QUANTUM}
HOT_INLINE_BYTES_MAX: Final = 0
"""Hot bytes are rows beside their batch however few they are: a row can be let go (RET-002), a batch cannot."""


def submit(state: Leasing, command: Submit, now_ms: int) -> Decided | Refused:
    """RCV-001: only for a live lease, by its holder, before the deadline; it freezes the lease."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused):
        return body
    if (body.lease_id, body.provider) != (command.lease_id, command.provider_id):
        return Refused("PRV-003", "the proof is of another lease or another provider", name="Forbidden")
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or not is_live(lease, now_ms):
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
    linked = TaskLinked(body.task_id, link_of(envelope))
    first = claim.why_not_first(state.claims, link_key(body.task_id), linked)
    if isinstance(first, Decided):
        return first
    if first is not None:
        return _conflict(body)
    return Refused("RCV-002", f"lease {body.lease_id.hex()} is over", "the job went on without it", "LeaseLost")


def _conflict(body: Body) -> Refused:
    says = f"task {body.task_id.hex()} is resolved by another proof"
    return Refused("RES-001", says, "one task, one nullifier: the first one counts", "ProofConflict")


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
    accepted = _accepted(state, lease, state.queue.jobs[lease.job_id], command.reasons[:REASONS_MAX], now_ms)
    attachments: tuple[Attachment, ...] = ()
    if command.output is not None:
        output, attachments = enclose(command.output, HOT_INLINE_BYTES_MAX)
        accepted = msgspec.structs.replace(accepted, output=output)
    if command.da_commitment is not None:
        accepted = msgspec.structs.replace(accepted, da_commitment=command.da_commitment)
    if no := _why_not_linked(state, accepted):
        return no
    return Decided((accepted, *praise(state, lease, now_ms)), attachments)


def _why_not_linked(state: Leasing, accepted: ProofAccepted) -> Refused | None:
    """RES-001: one task, one nullifier, for ever."""
    linked = TaskLinked(accepted.task_id, accepted.link)
    known = claim.why_not_first(state.claims, link_key(accepted.task_id), linked)
    if known is not None:
        says = f"task {accepted.task_id.hex()} is linked to a proof already"
        name = "ProofConflict" if isinstance(known, Refused) else "Refused"
        return Refused("RES-001", says, "one task, one nullifier: the first one counts", name)
    for each in (accepted.nullifier, *_older_nullifiers(state, accepted)):
        if state.claims.knows(nullifier_key(each)):
            return Refused("RES-001", f"nullifier {each.hex()} is known", name="NullifierReuse")
    return None


def _older_nullifiers(state: Leasing, accepted: ProofAccepted) -> list[Digest]:
    """CAN-003: what the same proof is known by under tags that are still recognised; mostly there are none."""
    older = _live(state)[:-1]
    if not older:
        return []
    envelope, job = unpack(state.submissions[accepted.lease_id]), state.queue.jobs[accepted.task_id]
    return [_nullifier(state, envelope, job, version) for version in older]


def _live(state: Leasing) -> tuple[int, ...]:
    chain = state.policy.chain
    return live_versions(state.open_height, chain.tags_v2_height, chain.tags_grace_blocks)


def _nullifier(state: Leasing, envelope: Envelope, job: Job, version: int) -> Digest:
    window = window_of(job.height, state.policy.chain.nullifier_window_blocks)
    return packed_nullifier(envelope.type, window, envelope.body, version)


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
    closed = LeaseClosed(lease.id, LeaseStatus.CANCELLED, trouble, now_ms, False, now_ms + wait_ms)
    if trouble is Trouble.NO_VERIFIER:
        return closed, JobFailed(job.id, trouble, now_ms)
    if job.attempts >= retrying.failures_max:
        return closed, JobFailed(job.id, ATTEMPTS_EXHAUSTED, now_ms)
    if now_ms + wait_ms >= ends_ms(job):
        return closed, JobExpired(job.id, TTL_OVER, now_ms)
    return (closed,)


def _accepted(state: Leasing, lease: Lease, job: Job, reasons: str, now_ms: int) -> ProofAccepted:
    envelope = unpack(state.submissions[lease.id])
    nullifier = _nullifier(state, envelope, job, _live(state)[-1])
    assert lease.submitted is not None
    payee = state.providers[lease.provider_id].account
    charged = Amount(min(job.max_fee, job.units * lease.price))
    names = (job.id, lease.id, lease.provider_id, nullifier, lease.submitted, lease.submitted_size)
    expires_at = Height(job.height + state.policy.result.result_ttl_blocks)
    whose = (link_of(envelope), job.caller, job.kind.value, earliest_read_height(job), None, state.open_height)
    return ProofAccepted(*names, payee, charged, now_ms, expires_at, envelope.method, reasons, None, *whose)


def verdict_key(state: Leasing, command: Judge) -> bytes | None:
    """The claim that a verdict depends on: the nullifier (ENG-005). A job that is not done has no link yet."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return None
    envelope, job = unpack(state.submissions[lease.id]), state.queue.jobs[lease.job_id]
    return nullifier_key(_nullifier(state, envelope, job, _live(state)[-1]))


def submission_key(state: Leasing, command: Submit) -> bytes | None:
    """The claim that it depends on: a late one on what its task is linked to, a second one on what was said before."""
    if (lease := state.leases.by_id.get(command.lease_id)) is not None:
        return equivocation_key(lease.id) if lease.submitted is not None else None
    body = read_body(command.envelope.body)
    return None if isinstance(body, Refused) else link_key(body.task_id)
