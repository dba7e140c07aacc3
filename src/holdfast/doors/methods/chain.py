"""The chain at the doors: its head, its blocks, proofs for light clients, and on development networks the way back."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.chain import acts
from holdfast.core.chain.blocks import Block, finalized
from holdfast.core.job.record import Job
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import Digest, Height, TaskId
from holdfast.doors.desk import NOBODY, OPERATORS, Desk, Method, Visitor
from holdfast.doors.methods.node import Nothing
from holdfast.doors.pages import why_not_limit
from holdfast.engine import consistency, light, read


class Head(msgspec.Struct, frozen=True):
    """The end of the chain, and what is open above it."""

    block: Block
    finalized: Height
    open_height: Height
    open_transactions: int


class OneBlock(msgspec.Struct, frozen=True):
    """Which block of the active chain."""

    height: Height


class BlockShown(msgspec.Struct, frozen=True):
    """A block, and the events that are its transactions."""

    block: Block
    is_final: bool
    transactions: list[int]


class ManyBlocks(msgspec.Struct, frozen=True):
    """A page of sealed blocks in the order of their sealing, orphaned ones among them."""

    height: int | None = None
    after: int = 0
    limit: int = 100


class OneTask(msgspec.Struct, frozen=True):
    """Whose admission is to be proved."""

    task_id: TaskId


class AdmissionProof(msgspec.Struct, frozen=True):
    """That a job was admitted in a block, to be checked with the proposer's key alone."""

    chain_id: int
    block: Block
    proof: light.TxProof


class TwoBlocks(msgspec.Struct, frozen=True):
    """An earlier and a later block of the active chain."""

    first: Height
    second: Height


class GrowthProof(msgspec.Struct, frozen=True):
    """RES-008: that the log of results only grew from one block to another (RFC 6962 consistency)."""

    chain_id: int
    first: Block
    second: Block
    path: list[Digest]


class To(msgspec.Struct, frozen=True):
    """The height to come down to."""

    height: Height


class RolledBack(msgspec.Struct, frozen=True):
    """What was undone."""

    event: int
    from_height: Height
    to_height: Height
    transactions: int
    """How many wait in the open block again."""


async def newest(desk: Desk) -> Block:
    """The newest sealed block."""
    return (await _head(desk, NOBODY, Nothing())).block


async def _head(desk: Desk, _: Visitor, __: Nothing) -> Head:
    def now(state: State) -> Head:
        chain = state.chain
        block = msgspec.structs.replace(chain.head)
        return Head(block, finalized(state), state.open_height, len(chain.open.txs))

    return await desk.source.ask(now)


async def _block(desk: Desk, height: Height) -> Block | Refused:
    found = await read.block(desk.source, height)
    return found or Refused("CHN-001", f"no block {height} on the active chain", name="NotFound")


async def _show(desk: Desk, _: Visitor, asked: OneBlock) -> BlockShown | Refused:
    block = await _block(desk, asked.height)
    if isinstance(block, Refused):
        return block
    final = await desk.source.ask(finalized)
    found = await light.transactions(desk.source.journal, block)
    if isinstance(found, Refused):
        return found
    return BlockShown(block, block.height <= final, [number for number, _ in found])


async def _blocks(desk: Desk, _: Visitor, asked: ManyBlocks) -> read.Listing | Refused:
    if no := why_not_limit(asked.limit):
        return no
    match = {} if asked.height is None else {"height": asked.height}
    return await read.page(desk.source, "block", match, asked.after, asked.limit)


async def _prove(desk: Desk, _: Visitor, asked: OneTask) -> AdmissionProof | Refused:
    job = await read.job(desk.source, asked.task_id)
    if job is None:
        return Refused("JOB-007", f"no job {asked.task_id.hex()}", name="NotFound")
    block = await _block_of(desk, job)
    if isinstance(block, Refused):
        return block
    proof = await light.prove_transaction(desk.source.journal, block, job.event)
    return proof if isinstance(proof, Refused) else AdmissionProof(desk.source.policy.chain_id, block, proof)


async def _block_of(desk: Desk, job: Job) -> Block | Refused:
    """The block whose events include the job's admission: that of its own height, or after a reorg one nearby."""
    head = await newest(desk)
    if job.event > head.last_event:
        hint = "ask again when the open block is sealed"
        return Refused("CHN-002", f"job {job.id.hex()} is in a block that is still open", hint, "NoResultYet")
    height = min(job.height, head.height)
    while (block := await read.block(desk.source, height)) is not None:
        if block.first_event <= job.event <= block.last_event:
            return block
        height = Height(height + (1 if block.last_event < job.event else -1))
    return Refused("CHN-002", f"the chain changed below job {job.id.hex()}", "ask again", "NoResultYet")


async def _prove_growth(desk: Desk, _: Visitor, asked: TwoBlocks) -> GrowthProof | Refused:
    if asked.first > asked.second:
        return Refused("RES-008", "params: first: is above second", name="InvalidParams")
    first, second = await _block(desk, asked.first), await _block(desk, asked.second)
    if isinstance(first, Refused):
        return first
    if isinstance(second, Refused):
        return second
    path = await consistency.prove(desk.source, first, second)
    return GrowthProof(desk.source.policy.chain_id, first, second, path)


async def _roll_back(desk: Desk, visitor: Visitor, asked: To) -> RolledBack | Refused:
    before = await _head(desk, visitor, Nothing())
    outcome = await desk.submit(Act(visitor.name, "chain.rollBack", acts.RollBack(asked.height)))
    if isinstance(outcome, Refused):
        return outcome
    after = await _head(desk, visitor, Nothing())
    return RolledBack(outcome.event, before.block.height, asked.height, after.open_transactions)


METHODS: Final[dict[str, Method]] = {
    "chain.head": Method("The end of the chain, and what is open above it.", Nothing, Head, _head),
    "chain.show": Method("One block of the active chain.", OneBlock, BlockShown, _show),
    "chain.list": Method("Sealed blocks, orphaned ones among them.", ManyBlocks, read.Listing, _blocks),
    "chain.proveAdmission": Method("That a job is in a block, for a light client.", OneTask, AdmissionProof, _prove),
    "chain.proveGrowth": Method(
        "That the log of results only grew between two blocks.", TwoBlocks, GrowthProof, _prove_growth
    ),
    "chain.rollBack": Method(
        "Take blocks back, on development networks.", To, RolledBack, _roll_back, OPERATORS, is_write=True
    ),
}
