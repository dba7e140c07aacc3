"""Methods about availability (DA-001): commitments of large results, and shares of them with their proofs."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.nmt_cache import CachedTree
from holdfast.api.node_access import NodeAccess, Principal, RpcCall, RpcMethod
from holdfast.api.rpc.methods.jobs import JobParams
from holdfast.api.rpc.methods.results import ResultProof, prove_result, read_output, readable_output
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import Digest, TaskId
from holdfast.lightclient.da.commitment import namespace_of
from holdfast.lightclient.da.shares import SHARE_BYTES

SHARES_MAX: Final = 16
"""A few samples, not the bytes (RPC-002)."""


class SharesParams(msgspec.Struct, frozen=True):
    """Which shares of which result."""

    task_id: TaskId
    start: int
    count: int = 1


class CommittedResult(msgspec.Struct, frozen=True):
    """What a light client needs to draw and check samples of a result."""

    task_id: TaskId
    da_commitment: Digest
    namespace: bytes
    root: bytes
    length: int
    share_bytes: int
    shares: int


class Shares(msgspec.Struct, frozen=True):
    """Shares, and the tree nodes that lead from them to the root."""

    namespace: bytes
    root: bytes
    length: int
    start: int
    shares: list[bytes]
    nodes: list[bytes]


class SharesProof(ResultProof, frozen=True):
    """RES-008, DA-001: the proof of the result, whose leaf holds the commitment, and of some shares of its bytes."""

    da: Shares | None = None


async def _get_commitment(access: NodeAccess, call: RpcCall, params: JobParams) -> CommittedResult | Refused:
    cached = await _cached_tree(access, call.principal, params.task_id)
    if isinstance(cached, Refused):
        return cached
    commitment = cached.da_commitment
    return CommittedResult(
        task_id=params.task_id,
        da_commitment=commitment.digest,
        namespace=commitment.namespace,
        root=commitment.root,
        length=commitment.length,
        share_bytes=SHARE_BYTES,
        shares=commitment.total,
    )


async def _prove(access: NodeAccess, call: RpcCall, params: SharesParams) -> SharesProof | Refused:
    cached = await _cached_tree(access, call.principal, params.task_id)
    if isinstance(cached, Refused):
        return cached
    total = cached.da_commitment.total
    if not 1 <= params.count <= SHARES_MAX:
        return Refused("RPC-002", f"params: count: 1 to {SHARES_MAX} shares at a time", name="InvalidParams")
    if not 0 <= params.start < params.start + params.count <= total:
        return Refused("DA-001", f"params: start: there are {total} shares, from 0 on", name="InvalidParams")
    proof = await prove_result(access, params.task_id)
    if isinstance(proof, Refused):
        return proof
    sample = cached.sample(params.start, params.count)
    shares = Shares(
        namespace=sample.commitment.namespace,
        root=sample.commitment.root,
        length=sample.commitment.length,
        start=sample.start,
        shares=list(sample.shares),
        nodes=list(sample.nodes),
    )
    return SharesProof(**msgspec.structs.asdict(proof), da=shares)


async def _cached_tree(access: NodeAccess, principal: Principal, id_: TaskId) -> CachedTree | Refused:
    """The bytes of a result with a commitment, and the tree over them. Shares are the bytes (JOB-010)."""
    result = await readable_output(access, principal, id_)
    if isinstance(result, Refused):
        return result
    if result.da_commitment is None:
        message = f"this result of {result.result_size} bytes has no commitment"
        return Refused("DA-001", message, "only those above policy.result.max_inline_bytes have one", "NotFound")
    if (cached := access.nmt_cache.find(result.da_commitment)) is not None:
        return cached
    raw = await read_output(access, principal, result)
    if isinstance(raw, Refused):
        return raw
    cached = await access.nmt_cache.put(namespace_of(result.caller.encode()), raw)
    if cached.da_commitment.digest != result.da_commitment:
        raise Corrupt("DA-001", f"the bytes of {id_.hex()} do not give the commitment of its record")
    return cached


METHODS: Final[dict[str, RpcMethod]] = {
    "da.getCommitment": RpcMethod("The commitment of a large result.", JobParams, CommittedResult, _get_commitment),
    "da.proveShares": RpcMethod("Some shares of a large result, with their proof.", SharesParams, SharesProof, _prove),
}
