"""Whether the queue takes a job in, lets it go, or moves it forward."""

from __future__ import annotations

from typing import Final

from holdfast.core import priority
from holdfast.core.canon import H, live_versions
from holdfast.core.escrow.books import AMOUNT_MAX
from holdfast.core.event import Decided, digest_of, enclose
from holdfast.core.job.ids import packed_task_id, request_hash, tx_hash
from holdfast.core.job.record import JOB_LIFE, LIVE, Job, JobAct
from holdfast.core.job.spec import read_payload
from holdfast.core.machine import why_not_step
from holdfast.core.policy import AdmissionPolicy, Policy
from holdfast.core.queue.acts import Cancel, Enqueue, FeeRaised, JobAdmitted, JobCancelled, RaiseFee, enqueue_key
from holdfast.core.queue.books import Admitting
from holdfast.core.queue.replicas import admitted
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, ChainId, Height, Kind, TaskId, Tier

ASKED_TAG: Final = "holdfast.asked.v1"
CALLER_BYTES_MAX: Final = 64


def prepare(
    policy: Policy, caller: AccountId, tier: Tier, payload: object, max_fee: int, nonce: int, idempotency: bytes = b""
) -> Enqueue | Refused:
    """JOB-001, JOB-003: all about a request that needs no state, so that the one who decides has little to do."""
    asked = read_payload(payload)
    if isinstance(asked, Refused):
        return asked
    if no := _why_not_terms(caller, max_fee, nonce) or _why_not_size(len(asked.raw), policy.admission):
        return no
    call = {"max_fee": max_fee, "payload": payload}
    return Enqueue(
        caller,
        tier,
        asked.kind,
        asked.raw,
        request_hash(asked.raw),
        tx_hash(ChainId(policy.chain_id), caller.encode(), nonce, call),
        nonce,
        Amount(max_fee),
        asked.units,
        asked.ttl_ms,
        asked.requirements,
        asked.proof,
        idempotency,
        H(ASKED_TAG, caller.encode(), max_fee, asked.raw)[:16] if idempotency else b"",
        asked.quorum_n,
        asked.quorum_m,
        asked.replica_proof,
        digest_of(asked.raw),
    )


def _why_not_terms(caller: AccountId, max_fee: int, nonce: int) -> Refused | None:
    wrong = {
        f"max_fee: {max_fee} is not in 1 … {AMOUNT_MAX}": not 1 <= max_fee <= AMOUNT_MAX,
        f"nonce: {nonce} is not in 0 … 2⁶³ − 1": not 0 <= nonce < 2**63,
        f"caller: 1–{CALLER_BYTES_MAX} bytes": not 1 <= len(caller.encode()) <= CALLER_BYTES_MAX,
    }
    found = "; ".join(says for says, is_so in wrong.items() if is_so)
    return Refused("JOB-001", found, name="InvalidParams") if found else None


def _why_not_size(size: int, policy: AdmissionPolicy) -> Refused | None:
    if size <= policy.payload_bytes_max:
        return None
    hint = "hand large inputs over by reference: spec.input"
    return Refused("JOB-005", f"the payload has {size} bytes, at most {policy.payload_bytes_max}", hint, "TooLarge")


def enqueue(state: Admitting, command: Enqueue, now_ms: int) -> Decided | Refused:
    """JOB-005, JOB-006: a receipt or nothing at all."""
    if first := _known_before(state, command, now_ms):
        return first
    more = max(1, command.quorum_m)
    if no := why_not_room(state, command.caller, more) or why_not_paid(state, command.caller, command.max_fee):
        return no
    policy = state.policy
    payload, attachments = enclose(command.payload, policy.engine.inline_payload_bytes_max, command.digest)
    rank = priority.key(command.max_fee, payload.size, command.tier, now_ms, policy.priority)
    who = (command.caller, command.tier, command.kind)
    event = JobAdmitted(
        _task_id(state, command),
        *who,
        state.open_height,
        command.tx_hash,
        command.nonce,
        command.request_hash,
        payload,
        command.max_fee,
        command.units,
        rank,
        now_ms,
        now_ms + (command.ttl_ms or ttl_ms(policy, command.kind)),
        command.requirements,
        command.proof,
        command.idempotency,
        command.asked,
        now_ms + policy.admission.idempotency_ms if command.idempotency else 0,
        expires_height(state),
        command.quorum_n,
        command.quorum_m,
    )
    if not event.quorum_m:
        return Decided((event,), attachments)
    return Decided((event, *admitted(event.id, event.quorum_m, command.replica_proof)), attachments)


def _task_id(state: Admitting, command: Enqueue) -> TaskId:
    chain_id, height, chain = ChainId(state.policy.chain_id), Height(state.open_height), state.policy.chain
    newest = live_versions(height, chain.tags_v2_height, chain.tags_grace_blocks)[-1]
    return packed_task_id(chain_id, height, command.tx_hash, command.caller.encode(), command.payload, newest)


def expires_height(state: Admitting) -> Height:
    """TTL-001: the last height at which a proof of a job that is taken in now can be accepted."""
    return Height(state.open_height + state.policy.result.result_ttl_blocks)


def ttl_ms(policy: Policy, kind: Kind) -> int:
    """TTL-001: how long a job of this kind may take where its requester does not say."""
    return policy.ttl.ai_ms if kind is Kind.AI else policy.ttl.quantum_ms


def _known_before(state: Admitting, command: Enqueue, now_ms: int) -> Decided | Refused | None:
    """JOB-002: the first receipt again, for a retry or for the very same transaction."""
    if (number := state.claims.event_of(enqueue_key(command))) is not None:
        return Decided((), since=number)
    known = state.queue.remembered.get(command.idempotency) if command.idempotency else None
    if known is None or now_ms >= known.until_ms:
        return None
    if known.asked == command.asked:
        return Decided((), since=known.event)
    hint = "a retry must be the same in every field; take a new key for a new request"
    return Refused("JOB-002", f"this idempotency key was used for event {known.event}", hint, "IdReused")


def why_not_room(state: Admitting, caller: AccountId, more: int = 1) -> Refused | None:
    """JOB-005: the fuller the queue beyond 80 %, the fewer jobs one requester may have in it.

    A job takes the room of its replicas (LEA-009); to its requester it counts as one.
    """
    policy, depth = state.policy.admission, state.queue.depth
    if depth + more > policy.queue_depth_max:
        hint = "ask again when jobs have left"
        return Refused("JOB-005", f"the queue is full: {depth} jobs", hint, "QueueFull")
    mine, may = state.queue.in_flight.get(caller, 0), in_flight_max(policy, depth)
    if mine < may:
        return None
    if may == policy.in_flight_per_requester_max:
        says = f"{caller} has {mine} jobs in flight, at most {may}"
        return Refused("JOB-005", says, "wait for some to end", "QueueFull")
    says = f"{caller} has {mine} jobs in flight, with {depth} in the queue at most {may}"
    return Refused("JOB-005", says, "the queue is filling up: ask again later", "BackPressure")


def in_flight_max(policy: AdmissionPolicy, depth: int) -> int:
    """How many jobs one requester may have while the queue is so deep: all, and from the threshold on ever fewer."""
    full, most = policy.queue_depth_max, policy.in_flight_per_requester_max
    threshold = full * policy.back_pressure_ppm // 1_000_000
    if depth < threshold:
        return most
    return max(1, most * (full - depth) // max(1, full - threshold))


def why_not_paid(state: Admitting, owner: AccountId, amount: int) -> Refused | None:
    account = state.ledger.accounts.get(owner)
    available = account.available if account is not None else 0
    if available >= amount:
        return None
    hint = "pending money becomes available when its block is final"
    return Refused("ESC-001", f"{owner} has {available} available, {amount} asked for", hint, "InsufficientFunds")


def cancel(state: Admitting, command: Cancel, now_ms: int) -> Decided | Refused:
    """JOB-008: a requester ends a job of its own, an operator any."""
    job = job_of(state, command.id, command.by)
    if isinstance(job, Refused):
        return job
    if why := why_not_step(JOB_LIFE, job.state, JobAct.CANCEL):
        return Refused("JOB-007", f"job {job.id.hex()}: {why}")
    return Decided((JobCancelled(job.id, command.reason, now_ms),))


def raise_fee(state: Admitting, command: RaiseFee, _now_ms: int) -> Decided | Refused:
    """JOB-008: a higher fee is reserved and gives the job the place it would have had with it from the start."""
    job = job_of(state, command.id, command.by)
    if isinstance(job, Refused):
        return job
    if job.state not in LIVE:
        return Refused("JOB-007", f"job {job.id.hex()}: {job.state} is final")
    if command.max_fee == job.max_fee:
        return Decided((), since=job.event)
    if not job.max_fee < command.max_fee <= AMOUNT_MAX:
        return Refused("JOB-008", f"{command.max_fee} is not above the {job.max_fee} offered")
    if no := why_not_paid(state, job.caller, command.max_fee - job.max_fee):
        return no
    rank = priority.key(command.max_fee, job.size_bytes, job.tier, job.enqueue_ms, state.policy.priority)
    return Decided((FeeRaised(job.id, command.max_fee, rank),))


def job_of(state: Admitting, id_: TaskId, by: AccountId | None) -> Job | Refused:
    """The job, if it lives and is this requester's."""
    job = state.queue.jobs.get(id_)
    if job is None:
        return Refused("JOB-007", f"no job {id_.hex()} lives", "it ended long ago or never was", "NotFound")
    if by is not None and by != job.caller:
        return Refused("SEC-001", f"job {id_.hex()} is not {by}'s", name="Forbidden")
    if job.parent:
        says = f"job {id_.hex()} is a replica of {job.parent.hex()}"
        return Refused("LEA-009", says, "ask for that one: they go together", "InvalidParams")
    return job
