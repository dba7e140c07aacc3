"""Host calls (JOB-004): the calls of a contract that runs inside a node, bound to chain, height, tx and caller.

    call = Call(chain_id=1337, height=height, tx_hash=tx, caller=AccountId("alice"))
    receipt = await host.ai_enqueue(call, {"model": "echo", "prompt": "hi"}, max_fee=100)
    ...                                                     # in a later block
    result = await host.read_result(later, receipt.task_id) # or Refused: NoResultYet
    await host.consume_result(later, receipt.task_id)

A call is deterministic: the same chain, height, transaction, caller and payload give the same task id, receipt and
answer on every node. A call for another chain, or for a block that is not open, is refused and has no effect.
JSON-RPC offers the same to the holder of a key: cap.enqueue, cap.readResult, cap.consumeResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.api.node_access import NodeAccess
from holdfast.api.receipts import Receipt, receipt_of
from holdfast.api.rpc.admission import checked_enqueue
from holdfast.core.base.errors import Refused
from holdfast.core.base.height_bound import TX_HASH_BYTES, AtHeight
from holdfast.core.base.values import AccountId, Digest, EventNo, Height, Kind, ProviderId, TaskId, Tier
from holdfast.core.job.spec import QuorumSpec
from holdfast.core.result.model import ResultStatus
from holdfast.engine.result_view import build_consume, readable_result, why_not_chain


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """Where a contract's call runs. The program that executes contracts vouches for these facts."""

    chain_id: int
    height: Height
    """The height of the open block."""
    tx_hash: Digest
    """The hash of the transaction that is being executed."""
    caller: AccountId
    tier: Tier = Tier.FREE


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job may ask for besides its spec (JOB-003); a default is not part of its payload."""

    units: int = 1
    ttl_ms: int | None = None
    region: str | None = None
    allow: list[str] | None = None
    deny: list[str] = []
    proof: str = "attested"
    quorum: QuorumSpec | None = None


class HostResult(msgspec.Struct, frozen=True):
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


class ConsumptionReceipt(msgspec.Struct, frozen=True):
    """The contract's caller has used a result (RES-005)."""

    task_id: TaskId
    height: Height
    event: EventNo
    is_repeat: bool


class Host:
    """The four calls on one node. Each returns its outcome, or Refused."""

    def __init__(self, access: NodeAccess) -> None:
        self._access = access

    async def ai_enqueue(
        self, call: Call, spec: Mapping[str, Any], max_fee: int, options: Options | None = None
    ) -> Receipt | Refused:
        """Enqueue an AI job; the same call again gets the same receipt (JOB-002)."""
        return await self._enqueue(call, Kind.AI, spec, max_fee, options)

    async def quantum_enqueue(
        self, call: Call, spec: Mapping[str, Any], max_fee: int, options: Options | None = None
    ) -> Receipt | Refused:
        """Enqueue a quantum circuit; the same call again gets the same receipt (JOB-002)."""
        return await self._enqueue(call, Kind.QUANTUM, spec, max_fee, options)

    async def read_result(self, call: Call, task_id: TaskId) -> HostResult | Refused:
        """RES-002: resolved in block B, readable from B + 1; until then NoResultYet. Reading changes nothing."""
        if refusal := _why_not_typed(call, _ResultArguments(task_id)) or self._why_not_bound(call):
            return refusal
        result = await readable_result(self._access.source, task_id, call.height)
        if isinstance(result, Refused):
            return result
        return HostResult(
            task_id=task_id,
            result_digest=result.result_digest,
            size=result.result_size,
            da_commitment=result.da_commitment,
            height_resolved=result.height_resolved,
            proof_nullifier=result.proof_nullifier,
            provider_id=result.provider_id,
            mime_type=result.mime_type,
            is_consumed=result.status is ResultStatus.CONSUMED,
        )

    async def consume_result(self, call: Call, task_id: TaskId) -> ConsumptionReceipt | Refused:
        """RES-005: once, by the job's caller; the same transaction again is a repeat."""
        if refusal := _why_not_typed(call, _ResultArguments(task_id)) or self._why_not_bound(call):
            return refusal
        command = await build_consume(self._access.source, task_id, call.caller, call.tx_hash)
        outcome = await self._access.submit(AtHeight(call.height, command))
        if isinstance(outcome, Refused):
            return outcome
        return ConsumptionReceipt(task_id, call.height, outcome.event, outcome.is_repeat)

    async def _enqueue(
        self, call: Call, kind: Kind, spec: Mapping[str, Any], max_fee: int, options: Options | None
    ) -> Receipt | Refused:
        if refusal := _why_not_typed(call, _EnqueueArguments(spec, max_fee, options)) or self._why_not_bound(call):
            return refusal
        payload = {"kind": kind.value, "spec": dict(spec), **msgspec.to_builtins(options or Options())}
        terms = (call.caller, call.tier, payload, max_fee, 0)
        access = self._access
        command = await checked_enqueue(access.input_checker, access.source.policy, *terms, inputs=access.inputs)
        if isinstance(command, Refused):
            return command
        bound = msgspec.structs.replace(command, tx_hash=call.tx_hash)
        outcome = await self._access.submit(AtHeight(call.height, bound))
        return outcome if isinstance(outcome, Refused) else await receipt_of(self._access.source, outcome)

    def _why_not_bound(self, call: Call) -> Refused | None:
        if len(call.tx_hash) != TX_HASH_BYTES:
            return Refused("JOB-004", f"tx_hash: {TX_HASH_BYTES} bytes are expected", name="InvalidParams")
        return why_not_chain(self._access.source.policy.chain_id, call.chain_id)


class _EnqueueArguments(msgspec.Struct, frozen=True):
    spec: Mapping[str, Any]
    max_fee: int
    options: Options | None


class _ResultArguments(msgspec.Struct, frozen=True):
    task_id: TaskId


def _why_not_typed(call: Call, arguments: _EnqueueArguments | _ResultArguments) -> Refused | None:
    """JOB-004: a contract's mistake is answered, never raised: the block goes on."""
    try:
        for each, kind in ((call, Call), (arguments, type(arguments))):
            plain = msgspec.to_builtins(each, builtin_types=(bytes,))
            msgspec.convert(plain, kind, builtin_types=(bytes,))
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as fault:
        return Refused("JOB-004", str(fault)[:200], name="InvalidParams")
    return None
