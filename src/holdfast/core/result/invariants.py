"""What must hold of results after every decision: each is resolved in the block of its proof (RES-002, RES-006)."""

from __future__ import annotations

from holdfast.core.base.values import EventNo, Height
from holdfast.core.chain.model import TxKind
from holdfast.core.result.model import HasResults, ResultStatus


def broken_invariants(state: HasResults) -> list[str]:
    """The invariants of results and consumptions that do not hold."""
    results, consumptions, log_size = state.results, state.consumptions, state.chain.log.size
    proofs = {tx_subject: height for height, kind, _, tx_subject in _transactions(state) if kind is TxKind.PROOF}
    heights = {number: height for height, kind, number, _ in _transactions(state) if kind is TxKind.CONSUMPTION}
    indexes = {result.leaf_index for result in results.values()}
    checks = {
        "a result is stored under its own task": all(id_ == result.task_id for id_, result in results.items()),
        "a result is resolved in the block of its proof": all(
            result.status is ResultStatus.RESOLVED and result.height_resolved == proofs.get(id_)
            for id_, result in results.items()
        ),
        "a result has its own leaf in the log": len(indexes) == len(results)
        and all(0 <= index < log_size for index in indexes),
        "a consumption is in the block of its transaction": all(
            consumption.height == heights.get(consumption.event) for consumption in consumptions.values()
        ),
        "a consumption is above its result": all(
            id_ not in results or results[id_].height_resolved < consumption.height
            for id_, consumption in consumptions.items()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _transactions(state: HasResults) -> list[tuple[Height, TxKind, EventNo, bytes]]:
    """Height, kind, event and subject of all transactions in memory."""
    chain = state.chain
    blocks = [
        *((height, final.txs) for height, final in state.final_blocks.items()),
        *((height, sealed.txs) for height, sealed in chain.unfinalized.items()),
        (state.open_height, chain.open.txs),
    ]
    return [(height, tx.kind, tx.number, tx.subject) for height, txs in blocks for tx in txs]
