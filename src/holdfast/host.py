"""Host calls (JOB-004): what a contract that runs inside a node may ask of it, bound to chain, height, tx and caller.

    call = Call(chain_id=1337, height=height, tx_hash=tx, caller=AccountId("alice"))
    receipt = await host.ai_enqueue(call, {"model": "echo", "prompt": "hi"}, max_fee=100)
    ...                                                     # later, in a later block
    seen = await host.read_result(later, receipt.task_id)   # or Refused: NoResultYet
    await host.consume_result(later, receipt.task_id)

A call is deterministic: the same chain, height, transaction, caller and payload give the same task id, receipt and
answer on every node. One that was made for another chain or for a block that is not open is refused and has no effect.
The same over JSON-RPC, with a key: cap.enqueue, cap.readResult, cap.consumeResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.core.call import AtHeight
from holdfast.core.queue.acts import JobAdmitted
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result.record import ResultStatus
from holdfast.core.values import AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId, Tier
from holdfast.doors.desk import Desk
from holdfast.doors.methods.jobs import Receipt, receipt
from holdfast.engine import read
from holdfast.engine.outcome import Accepted
from holdfast.engine.reading import consuming, readable, why_not_chain

TX_HASH_BYTES: Final = 32


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Where a contract's call runs. The caller is whoever executes contracts; it vouches for what stands here."""

    chain_id: int
    height: Height
    """Of the block that is open."""
    tx_hash: Digest
    """Of the transaction that is being executed."""
    caller: AccountId
    tier: Tier = Tier.FREE


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job may ask for besides its spec (JOB-003); what is not said is not part of its payload."""

    units: int = 1
    ttl_ms: int | None = None
    region: str | None = None
    proof: str = "attested"


class Seen(msgspec.Struct, frozen=True):
    """What a contract reads of a result: digests and facts of the chain, never bytes (RES-004)."""

    task_id: TaskId
    result_digest: Digest
    size: int
    da_commitment: Digest | None
    height_resolved: Height
    proof_nullifier: Digest
    provider_id: ProviderId
    mime_type: str
    is_consumed: bool


class Used(msgspec.Struct, frozen=True):
    """The contract's caller has used a result (RES-005)."""

    task_id: TaskId
    height: Height
    event: EventNo
    is_repeat: bool


class Host:
    """The four calls, on the node that this desk belongs to. Every one returns what it made, or Refused."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ai_enqueue(
        self, call: Call, spec: Mapping[str, Any], max_fee: int, options: Options | None = None
    ) -> Receipt | Refused:
        """Hand an AI job over; the same call again gets the same receipt (JOB-002)."""
        return await self._enqueue(call, Kind.AI, spec, max_fee, options)

    async def quantum_enqueue(
        self, call: Call, spec: Mapping[str, Any], max_fee: int, options: Options | None = None
    ) -> Receipt | Refused:
        """Hand a circuit over; the same call again gets the same receipt (JOB-002)."""
        return await self._enqueue(call, Kind.QUANTUM, spec, max_fee, options)

    async def read_result(self, call: Call, task_id: TaskId) -> Seen | Refused:
        """RES-002: resolved in block B, readable from B + 1; until then NoResultYet. Reading changes nothing."""
        if no := self._why_not_bound(call):
            return no
        found = await readable(self._desk.source, task_id, call.height)
        if isinstance(found, Refused):
            return found
        is_consumed = found.status is ResultStatus.CONSUMED
        what = (found.result_digest, found.result_size, found.da_commitment, found.height_resolved)
        return Seen(task_id, *what, found.proof_nullifier, found.provider_id, found.mime_type, is_consumed)

    async def consume_result(self, call: Call, task_id: TaskId) -> Used | Refused:
        """RES-005: once, by the job's caller; the same transaction again is the same use."""
        if no := self._why_not_bound(call):
            return no
        command = await consuming(self._desk.source, task_id, call.caller, call.tx_hash)
        outcome = await self._desk.submit(AtHeight(call.height, command))
        if isinstance(outcome, Refused):
            return outcome
        return Used(task_id, call.height, outcome.event, outcome.is_repeat)

    async def _enqueue(
        self, call: Call, kind: Kind, spec: Mapping[str, Any], max_fee: int, options: Options | None
    ) -> Receipt | Refused:
        if no := self._why_not_bound(call):
            return no
        asked = {"kind": kind.value, "spec": dict(spec), **msgspec.to_builtins(options or Options())}
        command = prepare(self._desk.source.policy, call.caller, call.tier, asked, max_fee, 0)
        if isinstance(command, Refused):
            return command
        bound = msgspec.structs.replace(command, tx_hash=call.tx_hash)
        outcome = await self._desk.submit(AtHeight(call.height, bound))
        return outcome if isinstance(outcome, Refused) else await self._receipt(outcome)

    async def _receipt(self, outcome: Accepted) -> Receipt | Refused:
        """JOB-006: what was admitted, for a repeat as it was admitted the first time."""
        source = self._desk.source
        if isinstance(outcome.fact, JobAdmitted):
            return receipt(outcome.fact, outcome.event, source.policy, is_repeat=False)
        first = await read.admitted(source, outcome.event) or await read.job_of(source, outcome.event)
        if first is None:
            return Refused("JOB-002", f"event {outcome.event} admitted this job; its record is gone", name="NotFound")
        return receipt(first, outcome.event, source.policy, is_repeat=True)

    def _why_not_bound(self, call: Call) -> Refused | None:
        if len(call.tx_hash) != TX_HASH_BYTES:
            return Refused("JOB-004", f"tx_hash: {TX_HASH_BYTES} bytes are expected", name="InvalidParams")
        return why_not_chain(self._desk.source.policy.chain_id, call.chain_id)
