"""Whether the queue admits a job (JOB-005, JOB-006) or raises its fee (JOB-008)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.core.base.canonical import H, live_versions
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Answer, Decided, NeedsClaims, make_payload, payload_digest
from holdfast.core.base.values import (
    I64_MAX,
    PPM,
    AccountId,
    Amount,
    ChainId,
    Digest,
    EventNo,
    Height,
    Kind,
    TaskId,
    Tier,
)
from holdfast.core.escrow.decide import available_of, check_funds, why_no_funds, why_not_amount
from holdfast.core.job.ids import enqueue_tx_hash, request_hash, task_id_maker
from holdfast.core.job.model import LIVE_STATES, Job, ready_ms
from holdfast.core.job.quorum import replica_ids
from holdfast.core.job.spec import read_payload, why_not_provable
from holdfast.core.policy import AdmissionPolicy, Policy, Visibility
from holdfast.core.queue import priority
from holdfast.core.queue.key_spending import KeySpending
from holdfast.core.queue.messages import (
    Enqueue,
    FeeRaised,
    JobAdmitted,
    RaiseFee,
    enqueue_key,
    idempotency_checksum,
    idempotency_key,
)
from holdfast.core.queue.model import HasQueue
from holdfast.core.queue.replicas import ReplicaAdmitted

FINGERPRINT_TAG: Final = "holdfast.parsed.v1"
CALLER_BYTES_MAX: Final = 64
QUANTUM: Final = Kind.QUANTUM


def build_enqueue(
    policy: Policy,
    caller: AccountId,
    tier: Tier,
    payload: object,
    max_fee: int,
    nonce: int,
    idempotency: bytes = b"",
    not_before_ms: int = 0,
) -> Enqueue | Refused:
    """JOB-001, JOB-003: everything about a request that needs no state, so that the engine's loop has little to do."""
    parsed = read_payload(payload)
    if isinstance(parsed, Refused):
        return parsed
    if refusal := _why_not_terms(caller, max_fee, nonce, not_before_ms) or _why_not_size(
        len(parsed.raw), policy.admission
    ):
        return refusal
    if refusal := why_not_provable(parsed, policy.proof):
        return refusal
    chain_id = ChainId(policy.chain_id)
    return Enqueue(
        caller=caller,
        tier=tier,
        kind=parsed.kind,
        payload=parsed.raw,
        request_hash=request_hash(parsed.raw),
        tx_hash=enqueue_tx_hash(chain_id, caller.encode(), nonce, max_fee, parsed.raw, not_before_ms),
        nonce=nonce,
        max_fee=Amount(max_fee),
        units=parsed.units,
        ttl_ms=parsed.ttl_ms,
        requirements=parsed.requirements,
        proof=parsed.proof,
        idempotency=idempotency,
        fingerprint=_fingerprint(caller, max_fee, parsed.raw, not_before_ms) if idempotency else b"",
        quorum_n=parsed.quorum_n,
        quorum_m=parsed.quorum_m,
        replica_proof=parsed.replica_proof,
        digest=payload_digest(parsed.raw),
        is_public=(parsed.visibility or policy.job.default_visibility) is Visibility.PUBLIC,
        input_digest=Digest(b"") if parsed.input is None else parsed.input.digest_bytes,
        run_ms_max=parsed.run_ms_max,
        not_before_ms=not_before_ms,
    )


def _fingerprint(caller: AccountId, max_fee: int, payload: bytes, not_before_ms: int) -> bytes:
    return H(FINGERPRINT_TAG, caller.encode(), max_fee, payload, *((not_before_ms,) if not_before_ms else ()))[:16]


def _why_not_terms(caller: AccountId, max_fee: int, nonce: int, not_before_ms: int) -> Refused | None:
    if refusal := why_not_amount(max_fee, "max_fee"):
        return refusal
    faults = [
        f"{name}: {value} is not in 0 … 2⁶³ − 1"
        for name, value in (("nonce", nonce), ("not_before_ms", not_before_ms))
        if not 0 <= value <= I64_MAX
    ]
    if not 1 <= len(caller.encode()) <= CALLER_BYTES_MAX:
        faults.append(f"caller: 1–{CALLER_BYTES_MAX} bytes")
    return Refused("JOB-001", "; ".join(faults), name="InvalidParams") if faults else None


def _why_not_size(size: int, policy: AdmissionPolicy) -> Refused | None:
    if size <= policy.payload_bytes_max:
        return None
    hint = "upload large inputs before, and name them: payload.input"
    return Refused("JOB-005", f"the payload has {size} bytes, at most {policy.payload_bytes_max}", hint, "TooLarge")


def enqueue(state: HasQueue, commands: Sequence[Enqueue], now_ms: int) -> list[Answer]:
    """JOB-005, JOB-006: a job is admitted with its fee reserved, or refused without any effect.

    Depth, jobs in flight, money and ids of the run are carried beside the state.
    """
    admission, queue, claims, answers = state.policy.admission, state.queue, state.claims, list[Answer]()
    number, depth, admit = state.last_event, queue.depth, _admission_maker(state, now_ms)
    in_flight, money = dict[AccountId, int](), dict[AccountId, int]()
    admitted, idempotency_keys = dict[bytes, EventNo](), set[bytes]()
    spending = KeySpending(state.keys, now_ms)
    for command in commands:
        key, caller, idempotency = enqueue_key(command), command.caller, command.idempotency
        if (earlier := admitted.get(key) or claims.event_of(key)) is not None:
            answers.append(Decided((), repeat_of=earlier))
            continue
        if (idempotency or claims.may_be_stored(key)) and (lacking := claims.lacking(enqueue_claims(command))):
            answers.append(NeedsClaims(lacking))
            break
        if idempotency and idempotency in idempotency_keys:
            break  # what it is compared with must be applied first
        if caller not in money:
            money[caller], in_flight[caller] = available_of(state.ledger, caller), queue.in_flight.get(caller, 0)
        answer = (
            (_idempotent_answer(state, command, now_ms) if idempotency else None)
            or (why_not_run_at(admission, command.not_before_ms, now_ms) if command.not_before_ms else None)
            or why_no_capacity(admission, depth, caller, in_flight[caller], command.quorum_m or 1)
            or why_held_back(state, caller, in_flight[caller])
            or why_no_funds(caller, money[caller], command.max_fee)
            or spending.why_over_cap(command.key, command.max_fee)
        )
        if answer is None:
            answer = spending.spend(command.key, command.max_fee, admit(command))
            admitted[key] = EventNo(number + 1)
            number = EventNo(number + len(answer.events))
            depth += command.quorum_m or 1
            in_flight[caller] += 1
            money[caller] -= command.max_fee
            if idempotency:
                idempotency_keys.add(idempotency)
        answers.append(answer)
    return answers


def _idempotent_answer(state: HasQueue, command: Enqueue, now_ms: int) -> Decided | Refused | None:
    """JOB-002: the first receipt, for a retry."""
    known = state.claims.find(idempotency_key(command.idempotency))
    if known is None or now_ms >= known.until_ms:
        return None
    if known.checksum == idempotency_checksum(command.fingerprint):
        return Decided((), repeat_of=known.event)
    hint = "a retry must be the same in every field; take a new key for a new request"
    return Refused("JOB-002", f"this idempotency key was used for event {known.event}", hint, "IdReused")


def _admission_maker(state: HasQueue, now_ms: int) -> Callable[[Enqueue], Decided]:
    """What all jobs that are admitted together share is computed once."""
    policy, height = state.policy, state.open_height
    until = expires_height(state)
    inline_max, valid_until_ms = policy.engine.inline_payload_bytes_max, now_ms + policy.admission.idempotency_ms
    newest = live_versions(height, policy.chain.tags_v2_height, policy.chain.tags_grace_blocks)[-1]
    task_id = task_id_maker(ChainId(policy.chain_id), height, newest)
    ranks: dict[tuple[int, int, Tier, int], int] = {}

    def admit(command: Enqueue) -> Decided:
        payload, attachments = make_payload(command.payload, inline_max, command.digest)
        from_ms = max(now_ms, command.not_before_ms)
        terms = command.max_fee, payload.size, command.tier, from_ms
        if (rank := ranks.get(terms)) is None:
            rank = ranks[terms] = priority.sort_priority(*terms, policy.priority)
        id_ = task_id(command.tx_hash, command.caller.encode(), command.payload)
        event = JobAdmitted(  # by position: by name takes six times as long, and every job needs it
            id_, command.caller, command.tier, command.kind, height, command.tx_hash, command.nonce,
            command.request_hash, payload, command.max_fee, command.units, rank, now_ms,
            from_ms + (command.ttl_ms or ttl_ms(policy, command.kind)), command.requirements, command.proof,
            command.idempotency, command.fingerprint, valid_until_ms if command.idempotency else 0,
            Height(until + blocks_in(policy, from_ms - now_ms)), command.quorum_n, command.quorum_m,
            command.is_public, command.input_digest, command.run_ms_max, from_ms if from_ms > now_ms else 0,
        )  # fmt: skip
        if not command.quorum_m:
            return Decided((event,), attachments)
        replicas = enumerate(replica_ids(id_, command.quorum_m))
        admitted = (ReplicaAdmitted(replica, id_, index, command.replica_proof) for index, replica in replicas)
        return Decided((event, *admitted), attachments)

    return admit


def why_not_run_at(policy: AdmissionPolicy, not_before_ms: int, now_ms: int) -> Refused | None:
    """JOB-013: a time that is past is now; one that is too far ahead is refused."""
    if not_before_ms <= now_ms + policy.run_at_ahead_ms_max:
        return None
    message = f"not_before_ms: {not_before_ms - now_ms} ms ahead, at most {policy.run_at_ahead_ms_max}"
    return Refused("JOB-013", message, "enqueue it later, or by a schedule", "InvalidParams")


def enqueue_claims(command: Enqueue) -> tuple[bytes, ...]:
    """The claims that an admission depends on (ENG-005)."""
    if not command.idempotency:
        return (enqueue_key(command),)
    return enqueue_key(command), idempotency_key(command.idempotency)


def expires_height(state: HasQueue) -> Height:
    """TTL-001: the last height at which a proof of a job that is admitted now can be accepted."""
    return Height(state.open_height + state.policy.result.result_ttl_blocks)


def blocks_in(policy: Policy, duration_ms: int) -> int:
    """JOB-013: as many blocks as can be sealed in this time, at most."""
    return -(-duration_ms // policy.chain.block_ms)


def ttl_ms(policy: Policy, kind: Kind) -> int:
    """TTL-001: the time to live of jobs of this kind where the requester sets none."""
    return policy.ttl.quantum_ms if kind is QUANTUM else policy.ttl.ai_ms


def check_capacity(state: HasQueue, caller: AccountId, more: int) -> Refused | None:
    queue = state.queue
    return why_no_capacity(state.policy.admission, queue.depth, caller, queue.in_flight.get(caller, 0), more)


def why_no_capacity(
    policy: AdmissionPolicy, depth: int, caller: AccountId, in_flight: int, more: int
) -> Refused | None:
    """JOB-005: the fuller the queue beyond 80 %, the fewer jobs one requester may have in it.

    A job takes the room of its replicas (LEA-009); to its requester it counts as one.
    """
    if depth + more > policy.queue_depth_max:
        return Refused("JOB-005", f"the queue is full: {depth} jobs", "try again when jobs have left", "QueueFull")
    limit = in_flight_max(policy, depth)
    if in_flight < limit:
        return None
    if limit == policy.in_flight_per_requester_max:
        message = f"{caller} has {in_flight} jobs in flight, at most {limit}"
        return Refused("JOB-005", message, "wait for some to end", "QueueFull")
    message = f"{caller} has {in_flight} jobs in flight, with {depth} in the queue at most {limit}"
    return Refused("JOB-005", message, "the queue is filling up: try again later", "BackPressure")


def why_held_back(state: HasQueue, caller: AccountId, in_flight: int) -> Refused | None:
    """JOB-012: who submits many invalid inputs has one job in flight until the epoch ends."""
    known = state.invalid_inputs.get(caller)
    most = state.policy.admission.invalid_inputs_max
    if known is None or not in_flight or known.count < most or known.epoch != epoch_of(state):
        return None
    message = f"{known.count} jobs of {caller} had invalid inputs in this epoch: one may be in flight"
    return Refused("JOB-012", message, "wait for it to end", "QueueFull")


def epoch_of(state: HasQueue) -> int:
    """The epoch of the head."""
    return (state.open_height - 1) // state.policy.chain.epoch_blocks


def in_flight_max(policy: AdmissionPolicy, depth: int) -> int:
    """How many jobs one requester may have at this depth: below the threshold the maximum, above it ever fewer."""
    full, most = policy.queue_depth_max, policy.in_flight_per_requester_max
    threshold = full * policy.back_pressure_ppm // PPM
    if depth < threshold:
        return most
    return max(1, most * (full - depth) // max(1, full - threshold))


def raise_fee(state: HasQueue, command: RaiseFee, now_ms: int) -> Decided | Refused:
    """JOB-008: a higher fee is reserved and gives the job the priority it would have had with it from the start."""
    job = job_of(state, command.id, command.by)
    if isinstance(job, Refused):
        return job
    if job.state not in LIVE_STATES:
        return Refused("JOB-007", f"job {job.id.hex()}: {job.state} is final", "submit a new one: `holdfast job again`")
    if refusal := why_not_amount(command.max_fee, "max_fee"):
        return refusal
    if command.max_fee == job.max_fee:
        return Decided((), repeat_of=job.event)
    if command.max_fee < job.max_fee:
        return Refused("JOB-008", f"{command.max_fee} is not above the {job.max_fee} offered", "offer more")
    spending, more = KeySpending(state.keys, now_ms), command.max_fee - job.max_fee
    if refusal := check_funds(state.ledger, job.caller, more) or spending.why_over_cap(command.key, more):
        return refusal
    rank = priority.sort_priority(command.max_fee, job.size_bytes, job.tier, ready_ms(job), state.policy.priority)
    return spending.spend(command.key, more, Decided((FeeRaised(job.id, command.max_fee, rank),)))


def job_of(state: HasQueue, id_: TaskId, by: AccountId | None) -> Job | Refused:
    """The job, if it is in memory and belongs to this requester."""
    job = state.queue.jobs.get(id_)
    if job is None:
        return Refused(
            "JOB-007", f"no live job {id_.hex()}", "`holdfast job show` says how it ended, if there was one", "NotFound"
        )
    if by is not None and by != job.caller:
        return Refused("SEC-001", f"job {id_.hex()} is not {by}'s", name="Forbidden")
    if job.parent:
        message = f"job {id_.hex()} is a replica of {job.parent.hex()}"
        return Refused("LEA-009", message, "name that job: its replicas follow it", "InvalidParams")
    return job
