"""Handing a result in, and the verdict on it (RCV-001, RCV-002, PRF-003): one command, whichever door it came by."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import claim
from holdfast.core.event import Attachment, Decided, Event, Payload, enclose
from holdfast.core.job.record import Job
from holdfast.core.lease.acts import CompletionSubmitted
from holdfast.core.lease.decide import failed
from holdfast.core.lease.record import Lease, LeaseStatus, Leasing, is_live
from holdfast.core.proof.envelope import Envelope, ProofType, pack, packed_nullifier, read_body, unpack, window_of
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, Digest, Height, Kind, LeaseId, ProviderId, TaskId

TYPES: Final = {Kind.AI: ProofType.AI, Kind.QUANTUM: ProofType.QUANTUM}


class Submit(msgspec.Struct, frozen=True, gc=False):
    """A result is handed in. Whoever submits this holds the output's bytes durably and has checked their digest."""

    lease_id: LeaseId
    provider_id: ProviderId
    envelope: Envelope


class Judge(msgspec.Struct, frozen=True, gc=False):
    """The verdict of the verifier on what was handed in."""

    lease_id: LeaseId
    is_good: bool
    reasons: str = ""
    output: bytes | None = None
    """The output's bytes where policy keeps them hot, in the store (TIER-001); whoever judges has checked them."""


class ProofAccepted(Event, frozen=True, tag=90):
    """A proof is in the open block: the job is done, its result is resolved there, its money settled (PRF-003)."""

    task_id: TaskId
    lease_id: LeaseId
    provider_id: ProviderId
    nullifier: Digest
    digest: Digest
    size: int
    payee: AccountId
    charged: Amount
    ended_ms: int
    expires_at: Height
    method: str
    reasons: str = ""
    output: Payload | None = None
    """The bytes themselves where they are kept hot."""


class CompletionIgnored(Event, frozen=True, tag=91):
    """A completion that came too late or a second time, kept because it happened (RCV-002)."""

    lease_id: LeaseId
    provider_id: ProviderId
    digest: Digest
    reason: str


def nullifier_key(asked: ProofAccepted) -> bytes:
    return b"n" + asked.nullifier


def submit(state: Leasing, command: Submit, now_ms: int) -> Decided | Refused:
    """RCV-001: only for a live lease, by its holder, before the deadline; it freezes the lease."""
    body = read_body(command.envelope.body)
    if isinstance(body, Refused):
        return body
    if (body.lease_id, body.provider) != (command.lease_id, command.provider_id):
        return Refused("PRV-003", "the proof is of another lease or another provider", name="Forbidden")
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or not is_live(lease, now_ms):
        return Refused("RCV-002", f"lease {command.lease_id.hex()} is over", "the job went on without it", "LeaseLost")
    if lease.provider_id != command.provider_id or lease.job_id != body.task_id:
        return Refused("PRV-003", f"lease {command.lease_id.hex()} is not this one's", name="Forbidden")
    if lease.submitted is not None:
        return _again(state, lease, body.output_digest)
    job = state.queue.jobs[lease.job_id]
    if (command.envelope.method, command.envelope.type) != (job.proof, TYPES[job.kind]):
        says = f"the job asks for proof by {job.proof!r} of type {TYPES[job.kind].value}"
        return Refused("PRF-002", says, name="InvalidParams")
    told = (body.output_digest, body.output_size, pack(command.envelope), now_ms)
    return Decided((CompletionSubmitted(lease.id, *told),))


def _again(state: Leasing, lease: Lease, digest: Digest) -> Decided | Refused:
    """RCV-002: the same again is answered as the first; another digest is evidence of equivocation."""
    if lease.submitted == digest:
        return Decided((), since=lease.event)
    return Decided((CompletionIgnored(lease.id, lease.provider_id, digest, "EQUIVOCATION"),))


def judge(state: Leasing, command: Judge, now_ms: int) -> Decided | Refused:
    """PRF-003: accepted completes the job and puts the proof into the open block; refused counts as PROOF_INVALID."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return Decided((), since=state.last_event)
    if not command.is_good:
        return Decided(failed(state, lease, LeaseStatus.CANCELLED, "PROOF_INVALID", now_ms))
    accepted = _accepted(state, lease, state.queue.jobs[lease.job_id], command.reasons, now_ms)
    attachments: tuple[Attachment, ...] = ()
    if command.output is not None:
        output, attachments = enclose(command.output, state.policy.engine.inline_payload_bytes_max)
        accepted = msgspec.structs.replace(accepted, output=output)
    taken = claim.why_not_first(state.claims, nullifier_key(accepted), accepted)
    if taken is not None:
        return Refused("RES-001", f"nullifier {accepted.nullifier.hex()} is known", name="NullifierReuse")
    return Decided((accepted,), attachments)


def _accepted(state: Leasing, lease: Lease, job: Job, reasons: str, now_ms: int) -> ProofAccepted:
    envelope = unpack(state.submissions[lease.id])
    window = window_of(job.height, state.policy.chain.nullifier_window_blocks)
    nullifier = packed_nullifier(envelope.type, window, envelope.body)
    assert lease.submitted is not None
    payee = state.providers[lease.provider_id].account
    charged = Amount(min(job.max_fee, job.units * lease.price))
    names = (job.id, lease.id, lease.provider_id, nullifier, lease.submitted, lease.submitted_size)
    expires_at = Height(job.height + state.policy.result.result_ttl_blocks)
    return ProofAccepted(*names, payee, charged, now_ms, expires_at, envelope.method, reasons)


def verdict_key(state: Leasing, command: Judge) -> bytes | None:
    """The claim that a verdict depends on: the nullifier (ENG-005)."""
    lease = state.leases.by_id.get(command.lease_id)
    if lease is None or lease.submitted is None:
        return None
    return nullifier_key(_accepted(state, lease, state.queue.jobs[lease.job_id], "", 0))
