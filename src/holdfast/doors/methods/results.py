"""Results at the doors: the record from the next block on, a proof for light clients, bytes on development networks."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.call import AtHeight
from holdfast.core.chain.blocks import Block
from holdfast.core.job.ids import tx_hash
from holdfast.core.key import Role
from holdfast.core.merkle import prove_inclusion, root
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.result.record import Result
from holdfast.core.values import AccountId, ChainId, Digest, EventNo, Height, TaskId
from holdfast.doors.desk import OWNERS, REQUESTERS, Desk, Method, Visitor, why_not_own
from holdfast.doors.methods.jobs import OneJob
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read
from holdfast.engine.reading import ResultView, consuming, readable, shown, why_not_chain

BYTES_MAX: Final = 1 << 20
"""A local fetch is for small results (RPC-002)."""


class OneResult(msgspec.Struct, frozen=True):
    """Which result, of which chain where that is named; `even_pending` shows PENDING and EXPIRED, too."""

    task_id: TaskId
    chain_id: int | None = None
    even_pending: bool = False


class ReadResult(msgspec.Struct, frozen=True):
    """Which result, of which chain and at which open height where they are named."""

    task_id: TaskId
    chain_id: int | None = None
    height: Height | None = None


class ConsumeResult(msgspec.Struct, frozen=True):
    """Which result is used; a retry carries the same nonce."""

    task_id: TaskId
    chain_id: int | None = None
    height: Height | None = None
    nonce: int | None = None
    """Tells a retry from a second use; drawn at random where it is not given."""
    caller: AccountId | None = None
    """Who uses it, where an operator asks on somebody's behalf."""


class Consumed(msgspec.Struct, frozen=True):
    """The result is used now, and cannot be again."""

    task_id: TaskId
    caller: AccountId
    nonce: int
    event: EventNo
    is_repeat: bool


class ManyVerdicts(msgspec.Struct, frozen=True):
    """Verdicts on what was handed in for a job and refused, in their order."""

    task_id: TaskId
    limit: int = 100
    cursor: int = 0


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


async def _get(desk: Desk, _: Visitor, asked: OneResult) -> ResultView | Refused:
    source = desk.source
    if no := why_not_chain(source.policy.chain_id, asked.chain_id):
        return no
    return await (shown if asked.even_pending else readable)(source, asked.task_id)


async def _read(desk: Desk, _: Visitor, asked: ReadResult) -> ResultView | Refused:
    """JOB-004: what a contract calls `read_result`, over RPC with a key."""
    no = why_not_chain(desk.source.policy.chain_id, asked.chain_id)
    return no or await readable(desk.source, asked.task_id, asked.height)


async def _consume(desk: Desk, visitor: Visitor, asked: ConsumeResult) -> Consumed | Refused:
    """JOB-004, RES-005: what a contract calls `consume_result`, over RPC with a key."""
    policy, caller = desk.source.policy, asked.caller or visitor.account
    if caller is None:
        return Refused("RES-005", "params: caller: who uses the result?", name="InvalidParams")
    if no := why_not_chain(policy.chain_id, asked.chain_id) or why_not_own(visitor, caller) or _why_not_nonce(asked):
        return no
    nonce = asked.nonce if asked.nonce is not None else secrets.randbits(63)
    tx = tx_hash(ChainId(policy.chain_id), caller.encode(), nonce, {"consume": asked.task_id})
    command: Any = await consuming(desk.source, asked.task_id, caller, tx)
    if asked.height is not None:
        command = AtHeight(asked.height, command)
    if visitor.role is not Role.REQUESTER:
        command = Act(visitor.name, "cap.consumeResult", command)
    outcome = await desk.submit(command)
    if isinstance(outcome, Refused):
        return outcome
    return Consumed(asked.task_id, caller, nonce, outcome.event, outcome.is_repeat)


def _why_not_nonce(asked: ConsumeResult) -> Refused | None:
    if asked.nonce is None or 0 <= asked.nonce < 2**63:
        return None
    return Refused("RPC-001", f"params: nonce: {asked.nonce} is not in 0 … 2⁶³ − 1", name="InvalidParams")


async def _verdicts(desk: Desk, _: Visitor, asked: ManyVerdicts) -> read.Listing | Refused:
    """PRF-002: a verdict that was no is kept with its reasons; a yes is in the result's record."""
    match = {"task_id": asked.task_id}
    return why_not_limit(asked.limit) or await read.page(desk.source, "verdict", match, asked.cursor, asked.limit)


async def _prove(desk: Desk, _: Visitor, asked: OneJob) -> ResultProof | Refused:
    found = await readable(desk.source, asked.task_id)
    if isinstance(found, Refused):
        return found
    block = await read.block(desk.source, found.height_resolved)
    if block is None:
        return _MOVED
    try:
        proof = await _proof(desk, found, block)
    except Corrupt:
        if await _is_still_there(desk, found, block):
            raise
        return _MOVED
    return proof if await _is_still_there(desk, found, block) else _MOVED


_MOVED: Final = Refused("RES-008", "a reorg takes the block of this result back just now", "ask again", "NoResultYet")


async def _proof(desk: Desk, found: ResultView, block: Block) -> ResultProof:
    first = block.log_size - block.result_count
    leaves = await read.leaves(desk.source, first, block.result_count)
    index = found.leaf_index - first
    if root(leaves) != block.result_root or not 0 <= index < len(leaves):
        raise Corrupt("RES-008", f"the leaves of block {block.height} do not give its root", "run holdfast db rebuild")
    path = prove_inclusion(leaves, index)
    return ResultProof(desk.source.policy.chain_id, block, leaves[index], index, len(leaves), path)


async def _is_still_there(desk: Desk, found: ResultView, block: Block) -> bool:
    """Whether record, block and leaves, read one after the other, were of one chain: a reorg may come in between."""
    now, head = await read.result(desk.source, found.task_id), await read.block(desk.source, block.height)
    place = (found.height_resolved, found.leaf_index)
    return now is not None and (now.height_resolved, now.leaf_index) == place and head == block


def pruned(found: Result) -> Refused:
    """RES-007, RET-004: the bytes are gone from here; the pointer says how they are known elsewhere."""
    where = [("result_digest", found.result_digest.hex()), ("height_resolved", str(found.height_resolved))]
    if found.da_commitment is not None:
        where.insert(0, ("da_commitment", found.da_commitment.hex()))
    hint = ", ".join(f"{name} {value}" for name, value in where)
    return Refused("RES-007", "the bytes are not here any more", hint, "ResultPruned", tuple(where))


async def _bytes(desk: Desk, _: Visitor, asked: OneJob) -> ResultBytes | Refused:
    """RPC-002: no bytes over RPC, unless a development network was told to."""
    if not desk.source.policy.result.serve_bytes:
        hint = "set policy.result.serve_bytes = true on a development network"
        return Refused("RPC-002", "this node serves no result bytes", hint, "Forbidden")
    found = await readable(desk.source, asked.task_id)
    if isinstance(found, Refused):
        return found
    if found.result_size > BYTES_MAX:
        return Refused("RPC-002", f"{found.result_size} bytes are too many for this way", name="TooLarge")
    raw = await read.hot_output(desk.source, found)
    if raw is None and desk.blobs is not None:
        raw = await desk.blobs.read(found.result_digest)
    if raw is None:
        return pruned(found)
    return ResultBytes(asked.task_id, found.result_digest, raw)


METHODS: Final[dict[str, Method]] = {
    "cap.getResult": Method("A result, from the block after its own on.", OneResult, ResultView, _get),
    "cap.readResult": Method("A result as a contract reads it.", ReadResult, ResultView, _read, OWNERS),
    "cap.consumeResult": Method(
        "Mark a result as used, once; for its job's caller.",
        ConsumeResult,
        Consumed,
        _consume,
        REQUESTERS,
        is_write=True,
    ),
    "cap.proveResult": Method("That a result is in a block, for a light client.", OneJob, ResultProof, _prove),
    "cap.listVerdicts": Method("Why proofs of a job were refused.", ManyVerdicts, read.Listing, _verdicts),
    "cap.getResultBytes": Method("A small result's bytes, on development networks.", OneJob, ResultBytes, _bytes),
}
