"""Methods about the chain: its head, its blocks, proofs for light clients; rollback on development networks."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import LONG_READ_COST, OPERATORS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.methods.jobs import JobParams
from holdfast.api.rpc.paging import filter_of, why_not_limit
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import submit_privileged
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height
from holdfast.core.chain import messages
from holdfast.core.chain.model import Block
from holdfast.core.job.model import Job
from holdfast.engine import proofs, queries
from holdfast.engine.queries.chain import ChainHead, GetChainHead
from holdfast.lightclient.tx_proof import TxProof


class BlockParams(msgspec.Struct, frozen=True):
    """Which block of the active chain."""

    height: Height


class BlockView(msgspec.Struct, frozen=True):
    """A block, and the events that are its transactions."""

    block: Block
    is_final: bool
    transactions: list[int]


class ListBlocksParams(msgspec.Struct, frozen=True):
    """A page of sealed blocks in the order of their sealing, orphaned ones included."""

    height: int | None = None
    after: int = 0
    limit: int = 100
    newest_first: bool = False
    """From the newest one down; `after` is then the last key of the page before."""


class AdmissionProof(msgspec.Struct, frozen=True):
    """Proves that a job was admitted in a block; the proposer's key is enough to check it."""

    chain_id: int
    block: Block
    proof: TxProof


class BlockPairParams(msgspec.Struct, frozen=True):
    """An earlier and a later block of the active chain."""

    first: Height
    second: Height


class ConsistencyProof(msgspec.Struct, frozen=True):
    """RES-008: proves that the log of results only grew from one block to another (RFC 6962 consistency)."""

    chain_id: int
    first: Block
    second: Block
    path: list[Digest]


class RollbackParams(msgspec.Struct, frozen=True):
    """The height to roll back to."""

    height: Height


class RollbackResult(msgspec.Struct, frozen=True):
    """What was rolled back, or is being rolled back."""

    event: int
    from_height: Height
    to_height: Height
    transactions: int
    """How many are in the open block again, or will be."""
    is_running: bool = False
    """It goes on in steps (CHN-003): `chain.getHead` tells how far it is, the event `rollbackFinished` its end."""


async def newest_block(access: NodeAccess) -> Block:
    """The newest sealed block."""
    return (await access.source.query_durable(GetChainHead())).block


async def _head(access: NodeAccess, _: RpcCall, __: NoParams) -> ChainHead:
    return await access.source.query_durable(GetChainHead())


async def _block_at(access: NodeAccess, height: Height) -> Block | Refused:
    block = await queries.block(access.source, height)
    return block or Refused("CHN-001", f"no block {height} on the active chain", name="NotFound")


async def _get_block(access: NodeAccess, _: RpcCall, params: BlockParams) -> BlockView | Refused:
    block = await _block_at(access, params.height)
    if isinstance(block, Refused):
        return block
    head = await access.source.query_durable(GetChainHead())
    async with access.long_turn:
        transactions = await proofs.block_transactions(access.source.journal, block)
    if isinstance(transactions, Refused):
        return transactions
    return BlockView(block, block.height <= head.finalized, [number for number, _ in transactions])


async def _list_blocks(access: NodeAccess, _: RpcCall, params: ListBlocksParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    match = filter_of({"height": params.height})
    return await queries.page(
        access.source, "block", match, params.after, params.limit, is_newest_first=params.newest_first
    )


async def _prove(access: NodeAccess, _: RpcCall, params: JobParams) -> AdmissionProof | Refused:
    job = await queries.job(access.source, params.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {params.task_id.hex()}", name="NotFound")
    block = await _block_of(access, job)
    if isinstance(block, Refused):
        return block
    async with access.long_turn:
        proof = await proofs.prove_transaction(access.source.journal, block, job.event)
    return proof if isinstance(proof, Refused) else AdmissionProof(access.source.policy.chain_id, block, proof)


async def _block_of(access: NodeAccess, job: Job) -> Block | Refused:
    """The block whose events include the job's admission: that of its own height, or after a reorg one nearby."""
    head = await newest_block(access)
    if job.event > head.last_event:
        hint = "try again when the open block is sealed"
        return Refused("CHN-002", f"job {job.id.hex()} is in a block that is still open", hint, "NoResultYet")
    height = min(job.height, head.height)
    while (block := await queries.block(access.source, height)) is not None:
        if block.first_event <= job.event <= block.last_event:
            return block
        height = Height(height + (1 if block.last_event < job.event else -1))
    return Refused("CHN-002", f"the chain changed below job {job.id.hex()}", "try again", "NoResultYet")


async def _prove_consistency(access: NodeAccess, _: RpcCall, params: BlockPairParams) -> ConsistencyProof | Refused:
    if params.first > params.second:
        return Refused("RES-008", "params: first: above second", name="InvalidParams")
    first, second = await _block_at(access, params.first), await _block_at(access, params.second)
    if isinstance(first, Refused):
        return first
    if isinstance(second, Refused):
        return second
    async with access.long_turn:
        path = await proofs.prove_log_consistency(access.source, first, second, access.log_slices)
    return ConsistencyProof(access.source.policy.chain_id, first, second, path)


async def _roll_back(access: NodeAccess, call: RpcCall, params: RollbackParams) -> RollbackResult | Refused:
    before = await access.source.query_durable(GetChainHead())
    outcome = await submit_privileged(access, call, messages.RollBackBlocks(params.height))
    if isinstance(outcome, Refused):
        return outcome
    after = await access.source.query_durable(GetChainHead())
    waiting = after.rollback.transactions if after.rollback is not None else 0
    return RollbackResult(
        event=outcome.event,
        from_height=before.block.height,
        to_height=params.height,
        transactions=after.open_transactions + waiting,
        is_running=after.rollback is not None,
    )


METHODS: Final[dict[str, RpcMethod]] = {
    "chain.getHead": RpcMethod("The newest sealed block, and the open block above it.", NoParams, ChainHead, _head),
    "chain.getBlock": RpcMethod(
        "One block of the active chain.", BlockParams, BlockView, _get_block, cost=LONG_READ_COST
    ),
    "chain.listBlocks": RpcMethod(
        "Sealed blocks, orphaned ones included.", ListBlocksParams, queries.Page, _list_blocks
    ),
    "chain.proveAdmission": RpcMethod(
        "Prove to a light client that a block admitted a job.", JobParams, AdmissionProof, _prove, cost=LONG_READ_COST
    ),
    "chain.proveConsistency": RpcMethod(
        "Prove that the log of results only grew.",
        BlockPairParams,
        ConsistencyProof,
        _prove_consistency,
        cost=LONG_READ_COST,
    ),
    "chain.rollBack": RpcMethod(
        "Roll blocks back, on development networks.",
        RollbackParams,
        RollbackResult,
        _roll_back,
        OPERATORS,
        is_write=True,
    ),
}
