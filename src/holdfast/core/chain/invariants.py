"""What must hold of the chain after every decision: blocks follow each other, and trees have a leaf for each entry."""

from __future__ import annotations

from itertools import pairwise

from holdfast.core.chain.model import HasChain, UnfinalizedBlock, final_height, genesis_chain


def broken_invariants(state: HasChain) -> list[str]:
    chain, final = state.chain, final_height(state)
    kept = [*([chain.last_final] if chain.last_final is not None else []), *chain.unfinalized.values()]
    orphaned = len([height for height in chain.unfinalized if height > chain.head.height])
    active = kept[: len(kept) - orphaned]
    head = active[-1].block if active else genesis_chain(state.policy).head
    log_size = active[-1].log.size if active else 0
    pool = chain.rollback.pool if chain.rollback is not None else []
    numbers = [tx.number for sealed in chain.unfinalized.values() for tx in sealed.txs]
    numbers += [tx.number for tx in (*chain.open.txs, *pool)]
    checks = {
        "the heights of unfinalized blocks are contiguous": list(chain.unfinalized)
        == list(range(final + 1, chain.head.height + 1 + orphaned)),
        "the head is the last sealed block": chain.head == head,
        "blocks above the head are being rolled back": not orphaned or chain.rollback is not None,
        "each block follows the block below it": all(_follows(below, above) for below, above in pairwise(kept)),
        "each block counts its transactions": all(
            len(sealed.txs) == sealed.block.tx_count for sealed in chain.unfinalized.values()
        ),
        "each block has the size of its log": all(sealed.log.size == sealed.block.log_size for sealed in kept),
        "the open block has a leaf for each transaction": chain.open.tree.size == len(chain.open.txs),
        "the log has a leaf for each result": chain.log.size == log_size + chain.open.results.size,
        "transactions are in the order of their events": all(a < b for a, b in pairwise(numbers)),
        "only final blocks wait for eviction": all(height <= final for height in state.final_blocks),
        "blocks and reservations became final in order": all(
            events == sorted(events)
            for events in (
                [block.event for block in state.final_blocks.values()],
                list(state.ledger.final_reservations),
            )
        ),
        "money of final blocks is final": final <= state.ledger.finalized_height,
    }
    return [invariant for invariant, holds in checks.items() if not holds]


def _follows(below: UnfinalizedBlock, above: UnfinalizedBlock) -> bool:
    parent, block = below.block, above.block
    return (block.height, block.parent, block.first_event) == (parent.height + 1, parent.hash, parent.last_event + 1)
