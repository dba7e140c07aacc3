"""Whether the queue admits a job (JOB-005, JOB-006) or raises its fee (JOB-008)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.base.canonical import H, live_versions
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, NeedsClaims, make_payload, payload_digest
from holdfast.core.base.values import I64_MAX, PPM, AccountId, Amount, ChainId, EventNo, Height, Kind, TaskId, Tier
from holdfast.core.escrow.decide import available_of, check_funds, why_no_funds
from holdfast.core.escrow.model import AMOUNT_MAX
from holdfast.core.job.ids import request_hash, task_id_maker, tx_hash
from holdfast.core.job.model import LIVE_STATES, Job
from holdfast.core.job.spec import read_payload
from holdfast.core.policy import AdmissionPolicy, Policy
from holdfast.core.queue import priority
from holdfast.core.queue.messages import (
    Enqueue,
    FeeRaised,
    JobAdmitted,
    RaiseFee,
    enqueue_key,
    idempotency_key,
    idempotent_request,
)
from holdfast.core.queue.model import HasQueue
from holdfast.core.queue.replicas import replica_admissions

FINGERPRINT_TAG: Final = "holdfast.parsed.v1"
CALLER_BYTES_MAX: Final = 64


def build_enqueue(
    policy: Policy, caller: AccountId, tier: Tier, payload: object, max_fee: int, nonce: int, idempotency: bytes = b""
) -> Enqueue | Refused:
    """JOB-001, JOB-003: everything about a request that needs no state, so that the engine's loop has little to do."""
    parsed = read_payload(payload)
    if isinstance(parsed, Refused):
        return parsed
    if refusal := _why_not_terms(caller, max_fee, nonce) or _why_not_size(len(parsed.raw), policy.admission):
        return refusal
    call = {"max_fee": max_fee, "payload": payload}
    return Enqueue(
        caller=caller,
        tier=tier,
        kind=parsed.kind,
        payload=parsed.raw,
        request_hash=request_hash(parsed.raw),
        tx_hash=tx_hash(ChainId(policy.chain_id), caller.encode(), nonce, call),
        nonce=nonce,
        max_fee=Amount(max_fee),
        units=parsed.units,
        ttl_ms=parsed.ttl_ms,
        requirements=parsed.requirements,
        proof=parsed.proof,
        idempotency=idempotency,
        fingerprint=H(FINGERPRINT_TAG, caller.encode(), max_fee, parsed.raw)[:16] if idempotency else b"",
        quorum_n=parsed.quorum_n,
        quorum_m=parsed.quorum_m,
        replica_proof=parsed.replica_proof,
        digest=payload_digest(parsed.raw),
    )


def _why_not_terms(caller: AccountId, max_fee: int, nonce: int) -> Refused | None:
    faults = {
        f"max_fee: {max_fee} is not in 1 … {AMOUNT_MAX}": not 1 <= max_fee <= AMOUNT_MAX,
        f"nonce: {nonce} is not in 0 … 2⁶³ − 1": not 0 <= nonce <= I64_MAX,
        f"caller: 1–{CALLER_BYTES_MAX} bytes": not 1 <= len(caller.encode()) <= CALLER_BYTES_MAX,
    }
    message = "; ".join(fault for fault, is_present in faults.items() if is_present)
    return Refused("JOB-001", message, name="InvalidParams") if message else None


def _why_not_size(size: int, policy: AdmissionPolicy) -> Refused | None:
    if size <= policy.payload_bytes_max:
        return None
    hint = "pass large inputs by reference: spec.input"
    return Refused("JOB-005", f"the payload has {size} bytes, at most {policy.payload_bytes_max}", hint, "TooLarge")


def enqueue(state: HasQueue, commands: Sequence[Enqueue], now_ms: int) -> list[Answer]:
    """JOB-005, JOB-006: a job is admitted with its fee reserved, or refused without any effect."""
    run, answers = _AdmissionRun(state, now_ms), list[Answer]()
    for command in commands:
        key, idempotency = enqueue_key(command), command.idempotency
        if idempotency and idempotency in run.idempotency_keys and key not in run.admitted:
            break  # what it is compared with must be applied first
        answer = run.earlier_answer(key, command) or run.why_not(command) or run.admit(key, command)
        answers.append(answer)
        if type(answer) is NeedsClaims:
            break
    return answers


class _AdmissionRun:
    """What earlier jobs of a run change for the later ones, beside the state: depth, jobs in flight, money, ids."""

    def __init__(self, state: HasQueue, now_ms: int) -> None:
        policy, height = state.policy, state.open_height
        self._state, self._now_ms, self._number = state, now_ms, state.last_event
        self._depth, self._in_flight, self._money = state.queue.depth, dict[str, int](), dict[str, int]()
        self._priorities: dict[tuple[int, int, Tier], int] = {}
        self._limits = policy.engine.inline_payload_bytes_max, expires_height(state), height
        newest = live_versions(height, policy.chain.tags_v2_height, policy.chain.tags_grace_blocks)[-1]
        self._task_id = task_id_maker(ChainId(policy.chain_id), height, newest)
        self._admission = policy.admission
        self.admitted: dict[bytes, EventNo] = {}
        self.idempotency_keys: set[bytes] = set()

    def earlier_answer(self, key: bytes, command: Enqueue) -> Answer | None:
        """JOB-002: the first receipt, for a retry or for the same transaction."""
        claims = self._state.claims
        if (number := self.admitted.get(key)) is None:
            number = claims.event_of(key)
        if number is not None:
            return Decided((), repeat_of=number)
        if lacking := claims.lacking(enqueue_claims(command)):
            return NeedsClaims(lacking)
        known = claims.find(idempotency_key(command.idempotency)) if command.idempotency else None
        if known is None or self._now_ms >= known.until_ms:
            return None
        if known.checksum == idempotent_request(command.fingerprint, 0).checksum:
            return Decided((), repeat_of=known.event)
        hint = "a retry must be the same in every field; take a new key for a new request"
        return Refused("JOB-002", f"this idempotency key was used for event {known.event}", hint, "IdReused")

    def why_not(self, command: Enqueue) -> Refused | None:
        """JOB-005, ESC-001: capacity and money, with what the run has taken of them."""
        caller, state = command.caller, self._state
        if caller not in self._money:
            self._money[caller] = available_of(state.ledger, caller)
            self._in_flight[caller] = state.queue.in_flight.get(caller, 0)
        return why_no_capacity(
            self._admission, self._depth, caller, self._in_flight[caller], command.quorum_m or 1
        ) or why_no_funds(caller, self._money[caller], command.max_fee)

    def admit(self, key: bytes, command: Enqueue) -> Decided:
        now_ms, caller, replicas = self._now_ms, command.caller, command.quorum_m
        inline_max, until, height = self._limits
        payload, attachments = make_payload(command.payload, inline_max, command.digest)
        ranked = command.max_fee, payload.size, command.tier
        if (rank := self._priorities.get(ranked)) is None:
            rank = self._priorities[ranked] = priority.sort_priority(*ranked, now_ms, self._state.policy.priority)
        id_ = self._task_id(command.tx_hash, caller.encode(), command.payload)
        expires_ms = now_ms + (command.ttl_ms or ttl_ms(self._state.policy, command.kind))
        event = JobAdmitted(  # by position: by name takes six times as long, and every job needs it
            id_,
            caller,
            command.tier,
            command.kind,
            height,
            command.tx_hash,
            command.nonce,
            command.request_hash,
            payload,
            command.max_fee,
            command.units,
            rank,
            now_ms,
            expires_ms,
            command.requirements,
            command.proof,
            command.idempotency,
            command.fingerprint,
            now_ms + self._admission.idempotency_ms if command.idempotency else 0,
            until,
            command.quorum_n,
            replicas,
        )
        self.admitted[key] = EventNo(self._number + 1)
        self._number = EventNo(self._number + 1 + replicas)
        self._depth += replicas or 1
        self._in_flight[caller] += 1
        self._money[caller] -= command.max_fee
        if command.idempotency:
            self.idempotency_keys.add(command.idempotency)
        events = (event, *replica_admissions(event.id, replicas, command.replica_proof)) if replicas else (event,)
        return Decided(events, attachments)


def enqueue_claims(command: Enqueue) -> tuple[bytes, ...]:
    """The claims that an admission depends on (ENG-005)."""
    if not command.idempotency:
        return (enqueue_key(command),)
    return enqueue_key(command), idempotency_key(command.idempotency)


def expires_height(state: HasQueue) -> Height:
    """TTL-001: the last height at which a proof of a job that is admitted now can be accepted."""
    return Height(state.open_height + state.policy.result.result_ttl_blocks)


def ttl_ms(policy: Policy, kind: Kind) -> int:
    """TTL-001: the time to live of jobs of this kind where the requester sets none."""
    return policy.ttl.ai_ms if kind is Kind.AI else policy.ttl.quantum_ms


def check_capacity(state: HasQueue, caller: AccountId, more: int = 1) -> Refused | None:
    queue = state.queue
    return why_no_capacity(state.policy.admission, queue.depth, caller, queue.in_flight.get(caller, 0), more)


def why_no_capacity(
    policy: AdmissionPolicy, depth: int, caller: AccountId, in_flight: int, more: int
) -> Refused | None:
    """JOB-005: the fuller the queue beyond 80 %, the fewer jobs one requester may have in it.

    A job takes the room of its replicas (LEA-009); to its requester it counts as one.
    """
    if depth + more > policy.queue_depth_max:
        hint = "try again when jobs have left"
        return Refused("JOB-005", f"the queue is full: {depth} jobs", hint, "QueueFull")
    limit = in_flight_max(policy, depth)
    if in_flight < limit:
        return None
    if limit == policy.in_flight_per_requester_max:
        message = f"{caller} has {in_flight} jobs in flight, at most {limit}"
        return Refused("JOB-005", message, "wait for some to end", "QueueFull")
    message = f"{caller} has {in_flight} jobs in flight, with {depth} in the queue at most {limit}"
    return Refused("JOB-005", message, "the queue is filling up: try again later", "BackPressure")


def in_flight_max(policy: AdmissionPolicy, depth: int) -> int:
    """How many jobs one requester may have at this depth: below the threshold the maximum, above it ever fewer."""
    full, most = policy.queue_depth_max, policy.in_flight_per_requester_max
    threshold = full * policy.back_pressure_ppm // PPM
    if depth < threshold:
        return most
    return max(1, most * (full - depth) // max(1, full - threshold))


def raise_fee(state: HasQueue, command: RaiseFee, _now_ms: int) -> Decided | Refused:
    """JOB-008: a higher fee is reserved and gives the job the priority it would have had with it from the start."""
    job = job_of(state, command.id, command.by)
    if isinstance(job, Refused):
        return job
    if job.state not in LIVE_STATES:
        return Refused("JOB-007", f"job {job.id.hex()}: {job.state} is final")
    if command.max_fee == job.max_fee:
        return Decided((), repeat_of=job.event)
    if not job.max_fee < command.max_fee <= AMOUNT_MAX:
        return Refused("JOB-008", f"{command.max_fee} is not above the {job.max_fee} offered")
    if refusal := check_funds(state.ledger, job.caller, command.max_fee - job.max_fee):
        return refusal
    rank = priority.sort_priority(command.max_fee, job.size_bytes, job.tier, job.enqueue_ms, state.policy.priority)
    return Decided((FeeRaised(job.id, command.max_fee, rank),))


def job_of(state: HasQueue, id_: TaskId, by: AccountId | None) -> Job | Refused:
    """The job, if it is in memory and belongs to this requester."""
    job = state.queue.jobs.get(id_)
    if job is None:
        return Refused("JOB-007", f"no live job {id_.hex()}", "it ended long ago or never existed", "NotFound")
    if by is not None and by != job.caller:
        return Refused("SEC-001", f"job {id_.hex()} is not {by}'s", name="Forbidden")
    if job.parent:
        message = f"job {id_.hex()} is a replica of {job.parent.hex()}"
        return Refused("LEA-009", message, "name that job: its replicas follow it", "InvalidParams")
    return job
