"""What must hold of results after every decision: each is resolved in the block of its proof (RES-002, RES-006)."""

from __future__ import annotations

from holdfast.core.base.values import EventNo, Height
from holdfast.core.chain.model import Rollback, TxKind
from holdfast.core.result.model import Consumption, HasResults, ResultStatus


def broken_invariants(state: HasResults) -> list[str]:
    results, consumptions, log_size = state.results, state.consumptions, state.chain.log.size
    proofs = {tx_subject: height for height, kind, _, tx_subject in _transactions(state) if kind is TxKind.PROOF}
    heights = {number: height for height, kind, number, _ in _transactions(state) if kind is TxKind.CONSUMPTION}
    linked = [result for result in results.values() if 0 < result.height_resolved <= _highest(state)]
    indexes = {result.leaf_index for result in linked}
    checks = {
        "a result is stored under its own task": all(id_ == result.task_id for id_, result in results.items()),
        "a result is resolved in the block of its proof": all(
            (result.status is ResultStatus.RESOLVED) == bool(result.height_resolved)
            and result.height_resolved == proofs.get(id_)
            for id_, result in results.items()
        ),
        "a result has its own leaf in the log": len(indexes) == len(linked)
        and all(0 <= index < log_size for index in indexes),
        "a consumption is in the block of its transaction": all(
            consumption.height == heights.get(consumption.event) or _is_pooled(state, consumption)
            for consumption in consumptions.values()
        ),
        "a consumption is above its result": all(
            id_ not in results or results[id_].height_resolved < consumption.height
            for id_, consumption in consumptions.items()
            if consumption.height
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _highest(state: HasResults) -> Height:
    """The highest block with results that are in the log: the open one, unless a rollback still undoes blocks."""
    head, rollback = state.chain.head.height, state.chain.rollback
    is_undoing = rollback is not None and (rollback.height or max(state.chain.unfinalized, default=0) > head)
    return head if is_undoing else state.open_height


def _is_pooled(state: HasResults, consumption: Consumption) -> bool:
    """Consumed while a rollback runs: the open block will include it."""
    rollback = state.chain.rollback
    is_waiting = rollback is not None and any(tx.number == consumption.event for tx in rollback.pool[rollback.linked :])
    return is_waiting and consumption.height == state.open_height


def _transactions(state: HasResults) -> list[tuple[Height, TxKind, EventNo, bytes]]:
    """Height, kind, event and subject of all transactions in memory; the height is 0 where it waits for a block."""
    chain = state.chain
    rollback = chain.rollback or Rollback(EventNo(0))
    blocks = [
        *((height, final.txs) for height, final in state.final_blocks.items()),
        *((height, sealed.txs) for height, sealed in chain.unfinalized.items()),
        (state.open_height, chain.open.txs),
        (rollback.height, rollback.pool[: rollback.linked]),
        (Height(0), rollback.pool[rollback.linked :]),
    ]
    return [(height, tx.kind, tx.number, tx.subject) for height, txs in blocks for tx in txs]
