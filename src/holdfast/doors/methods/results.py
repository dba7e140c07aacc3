"""Results at the doors: the record from the next block on, a proof for light clients, bytes on development networks."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.chain.blocks import Block
from holdfast.core.merkle import prove_inclusion, root
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.result.read import why_not_readable
from holdfast.core.result.record import Result
from holdfast.core.values import Digest, TaskId
from holdfast.doors.desk import Desk, Method, Visitor
from holdfast.doors.methods.jobs import OneJob
from holdfast.engine import read

BYTES_MAX: Final = 1 << 20
"""A local fetch is for small results (RPC-002)."""


class ResultProof(msgspec.Struct, frozen=True):
    """RES-008: that a result was resolved in a block: leaf, way up to the header's `result_root`, signed header."""

    chain_id: int
    block: Block
    leaf: bytes
    index: int
    size: int
    path: list[Digest]


class ResultBytes(msgspec.Struct, frozen=True):
    """The bytes of a result, for a development network."""

    task_id: TaskId
    result_digest: Digest
    bytes: bytes


async def readable(desk: Desk, id_: TaskId) -> Result | Refused:
    """The result, if a call that runs now may read it."""
    job = await read.job(desk.source, id_)
    if job is None:
        return Refused("RES-007", f"no job {id_.hex()}", name="NotFound")
    found = await read.result(desk.source, id_)
    open_height = await desk.source.ask(lambda state: state.open_height)
    no = why_not_readable(job, found, open_height)
    if no is not None or found is None:
        return no or Refused("RES-007", f"no result of {id_.hex()}", name="NotFound")
    return found


async def _get(desk: Desk, _: Visitor, asked: OneJob) -> Result | Refused:
    return await readable(desk, asked.task_id)


async def _prove(desk: Desk, _: Visitor, asked: OneJob) -> ResultProof | Refused:
    found = await readable(desk, asked.task_id)
    if isinstance(found, Refused):
        return found
    block = await read.block(desk.source, found.height_resolved)
    if block is None:
        return Refused("RES-008", f"block {found.height_resolved} is not on the active chain", name="NoResultYet")
    first = block.log_size - block.result_count
    leaves = await read.leaves(desk.source, first, block.result_count)
    if root(leaves) != block.result_root:
        raise Corrupt("RES-008", f"the leaves of block {block.height} do not give its root", "run holdfast db rebuild")
    index = found.leaf_index - first
    path = prove_inclusion(leaves, index)
    return ResultProof(desk.source.policy.chain_id, block, leaves[index], index, len(leaves), path)


async def _bytes(desk: Desk, _: Visitor, asked: OneJob) -> ResultBytes | Refused:
    """RPC-002: no bytes over RPC, unless a development network was told to."""
    if not desk.source.policy.result.serve_bytes:
        hint = "set policy.result.serve_bytes = true on a development network"
        return Refused("RPC-002", "this node serves no result bytes", hint, "Forbidden")
    found = await readable(desk, asked.task_id)
    if isinstance(found, Refused):
        return found
    if found.result_size > BYTES_MAX:
        return Refused("RPC-002", f"{found.result_size} bytes are too many for this way", name="TooLarge")
    raw = await read.hot_output(desk.source, found)
    if raw is None and desk.blobs is not None:
        raw = await desk.blobs.read(found.result_digest)
    if raw is None:
        return Refused("RES-007", "the bytes are not here any more", name="ResultPruned")
    return ResultBytes(asked.task_id, found.result_digest, raw)


METHODS: Final[dict[str, Method]] = {
    "cap.getResult": Method("A result, from the block after its own on.", OneJob, Result, _get),
    "cap.proveResult": Method("That a result is in a block, for a light client.", OneJob, ResultProof, _prove),
    "cap.getResultBytes": Method("A small result's bytes, on development networks.", OneJob, ResultBytes, _bytes),
}
