"""Queries about the chain and the results that a reorg could still reach."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import EventNo, Height, TaskId
from holdfast.core.chain.model import Block, Chain, final_height
from holdfast.core.job.model import Job
from holdfast.core.result.model import Consumption, Result, leaf_of
from holdfast.core.retention.model import Pass, is_dropped
from holdfast.core.state import State
from holdfast.engine.queries.query import Query, copy_record


class RollbackProgress(msgspec.Struct, frozen=True):
    """A rollback that is under way: the head is the block that it returns to."""

    event: EventNo
    """The event that started it."""
    blocks: int
    """Blocks that it has not reached yet."""
    transactions: int
    """Those that are not in the open block yet."""


class ChainHead(msgspec.Struct, frozen=True):
    """The newest sealed block, and the open block above it."""

    block: Block
    finalized: Height
    open_height: Height
    open_transactions: int
    rollback: RollbackProgress | None = None


class GetChainHead(Query[ChainHead], frozen=True):
    """Where the chain ends."""


class GetBlockInMemory(Query[Block | None], frozen=True):
    """The block of this height, while memory holds it."""

    height: Height


class FindBlockInMemory(Query[Block | None], frozen=True):
    """The block of the active chain with this hash, while memory holds it."""

    hash: bytes


class GetLeavesInMemory(Query[dict[int, bytes]], frozen=True):
    """RES-008: those leaves of the log, by their place, whose results memory holds."""

    first: int
    count: int


class GetUnfinalizedResult(Query[Result | None], frozen=True):
    """A result that memory holds: a reorg can still unlink it, or the tables may not have it yet."""

    task_id: TaskId


class GetUnfinalizedConsumption(Query[Consumption | None], frozen=True):
    """The use of a result, while a reorg can still undo it."""

    task_id: TaskId


class ResultMoment(msgspec.Struct, frozen=True, gc=False):
    """What is known of a task, all as of one moment."""

    open_height: Height
    job: Job | None
    result: Result | None
    consumption: Consumption | None


class GetResultMoment(Query[ResultMoment], frozen=True):
    """What memory knows of a task: one query, so that no block is sealed between two answers."""

    task_id: TaskId


class IsHotOutputDropped(Query[bool], frozen=True):
    """RET-002: whether the store may have deleted the output of the result that this event accepted."""

    event: EventNo


def _get_chain_head(state: State, _: GetChainHead) -> ChainHead:
    return ChainHead(
        block=msgspec.structs.replace(state.chain.head),
        finalized=final_height(state),
        open_height=state.open_height,
        open_transactions=len(state.chain.open.txs),
        rollback=_rollback_progress(state.chain),
    )


def _rollback_progress(chain: Chain) -> RollbackProgress | None:
    if chain.rollback is None:
        return None
    blocks = [sealed for height, sealed in chain.unfinalized.items() if height > chain.head.height]
    waiting = len(chain.rollback.pool) + sum(len(sealed.txs) for sealed in blocks)
    return RollbackProgress(chain.rollback.started, len(blocks), waiting)


def _get_block_in_memory(state: State, query: GetBlockInMemory) -> Block | None:
    chain = state.chain
    for block in (chain.unfinalized.get(query.height), state.final_blocks.get(query.height), chain.last_final):
        if block is not None and block.block.height == query.height <= chain.head.height:
            return copy_record(block.block)
    return None


def _find_block_in_memory(state: State, query: FindBlockInMemory) -> Block | None:
    chain = state.chain
    blocks = [each.block for each in chain.unfinalized.values()] + [each.block for each in state.final_blocks.values()]
    blocks += [chain.last_final.block] if chain.last_final is not None else []
    found = next((each for each in blocks if each.hash == query.hash and each.height <= chain.head.height), None)
    return None if found is None else copy_record(found)


def _get_leaves_in_memory(state: State, query: GetLeavesInMemory) -> dict[int, bytes]:
    places = range(query.first, query.first + query.count)
    return {result.leaf_index: leaf_of(result) for result in state.results.values() if result.leaf_index in places}


def _get_unfinalized_result(state: State, query: GetUnfinalizedResult) -> Result | None:
    return copy_record(state.results.get(query.task_id))


def _get_unfinalized_consumption(state: State, query: GetUnfinalizedConsumption) -> Consumption | None:
    return copy_record(state.consumptions.get(query.task_id))


def _get_result_moment(state: State, query: GetResultMoment) -> ResultMoment:
    id_ = query.task_id
    return ResultMoment(
        state.open_height,
        copy_record(state.queue.jobs.peek(id_)),
        copy_record(state.results.get(id_)),
        copy_record(state.consumptions.get(id_)),
    )


def _is_hot_output_dropped(state: State, query: IsHotOutputDropped) -> bool:
    return is_dropped(state, Pass.HOT, query.event)


QUERIES: Final = {
    GetChainHead: _get_chain_head,
    GetBlockInMemory: _get_block_in_memory,
    FindBlockInMemory: _find_block_in_memory,
    GetLeavesInMemory: _get_leaves_in_memory,
    GetUnfinalizedResult: _get_unfinalized_result,
    GetUnfinalizedConsumption: _get_unfinalized_consumption,
    GetResultMoment: _get_result_moment,
    IsHotOutputDropped: _is_hot_output_dropped,
}
