"""What an event does to the chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.core.canon import canonical, packed_bytes, packed_int
from holdfast.core.chain.acts import BlockSealed, BlocksFinal, BlockUndone, Reincluded, Released
from holdfast.core.chain.blocks import (
    BlockStatus,
    Linked,
    Open,
    Recent,
    Tx,
    TxKind,
    begun,
    block_of,
    copy_of,
    finalized,
    next_header,
)
from holdfast.core.chain.header import Signed, header_hash
from holdfast.core.escrow import apply as money
from holdfast.core.escrow.acts import Finalized
from holdfast.core.merkle import Frontier, leaf_hash
from holdfast.core.queue import apply as queue
from holdfast.core.refusal import Corrupt
from holdfast.core.values import ChainId, EventNo, Height, TaskId


def tx_leaf(kind: TxKind, number: EventNo, subject: bytes, about: bytes) -> bytes:
    """A transaction as a light client sees it: its kind, its event, whom it concerns, and a digest of the rest.

    It is `canonical([kind, number, subject, about])`, put together by hand because every job passes here twice.
    """
    return _FOUR[kind] + packed_int(number) + packed_bytes(subject) + packed_bytes(about)


_FOUR: Final = {kind: b"\x84" + canonical(kind.value) for kind in TxKind}
"""The beginning of an array of four whose first is the kind."""


def include(state: Linked, kind: TxKind, subject: bytes, about: bytes) -> None:
    """CHN-002: the event just applied is a transaction of the open block."""
    number = state.last_event
    _add(state.chain.open, Tx(number, kind, subject, leaf_hash(tx_leaf(kind, number, subject, about))))


def _add(open_: Open, tx: Tx) -> None:
    open_.txs.append(tx)
    open_.tree.append(tx.leaf)


def apply_sealed(state: Linked, event: BlockSealed) -> None:
    """CHN-006: the header is computed again from what the events did; another hash is a history that cannot be."""
    chain = state.chain
    header = next_header(state, EventNo(state.last_event - 1), event.time_ms, event.proposer)
    if (header_hash(header), header.height) != (event.hash, event.height):
        hint = "chain_id must be the one the chain was begun with; else the journal was changed"
        raise Corrupt("CHN-006", f"block {event.height} does not have the hash that its events give", hint)
    block = block_of(state.last_event, Signed(header, event.hash, event.signature))
    chain.recent[event.height] = Recent(block, chain.open.txs, copy_of(chain.log))
    chain.head, chain.open = block, Open()
    state.touched["block"][block.event] = block


def apply_finalized(state: Linked, event: Finalized) -> None:
    """CHN-005: what can never be taken back need not be ready for it."""
    chain, ledger = state.chain, state.ledger
    settled = [id_ for height, ids in ledger.settled.items() if height <= event.height for id_ in ids]
    money.apply_finalized(state, event)
    for id_ in settled:
        queue.forget(state, id_)
    for final in [each for each in chain.recent if each <= event.height]:
        chain.base = chain.recent.pop(final)
        chain.base.txs = []


def apply_blocks_final(state: Linked, event: BlocksFinal) -> None:
    """CHN-005: from now on they stay; what they made ready for a reorg is let go by and by."""
    chain, state.ledger.finalized = state.chain, event.height
    for final in [each for each in chain.recent if each <= event.height]:
        chain.base = chain.recent.pop(final)
        state.settling[final] = chain.base.txs
        chain.base.txs = []
        if not state.settling[final]:
            del state.settling[final]


def apply_released(state: Linked, event: Released) -> None:
    """ESC-002: the oldest first."""
    for id_ in money.release(state, event.count, finalized(state)):
        queue.forget(state, id_)


def leave(state: Linked, count: int) -> list[tuple[Height, Tx]]:
    """The next transactions of final blocks that memory lets go of."""
    found: list[tuple[Height, Tx]] = []
    for height in list(state.settling):
        txs, room = state.settling[height], count - len(found)
        found += [(height, tx) for tx in txs[:room]]
        if len(txs) <= room:
            del state.settling[height]
        else:
            state.settling[height] = txs[room:]
        if len(found) >= count:
            break
    return found


def apply_undone(state: Linked, event: BlockUndone) -> None:
    """CHN-003: the topmost block goes; its transactions wait in the open block, before those that came later."""
    chain = state.chain
    money.undo(state, event.height)
    if not event.hash:
        return
    gone = chain.recent.pop(event.height)
    gone.block.status = BlockStatus.ORPHANED
    state.touched["block"][gone.block.event] = gone.block
    chain.open.txs = gone.txs + chain.open.txs
    chain.head = _last(state).block


def _last(state: Linked) -> Recent:
    chain = state.chain
    if chain.recent:
        return next(reversed(chain.recent.values()))
    return chain.base or Recent(begun(ChainId(state.policy.chain_id)).head, [], Frontier())


Again = Callable[[Any, Tx], None]
"""What follows from being in a block, done again in another one."""


def apply_reincluded(state: Linked, event: Reincluded, again: Mapping[TxKind, Again]) -> None:
    """CHN-004: the transactions of blocks that are gone, in their order, in the block that is open now."""
    chain = state.chain
    waiting = chain.open.txs
    if (len(waiting), chain.head.height + 1) != (event.count, event.height):
        raise Corrupt("CHN-004", f"{len(waiting)} transactions wait for block {chain.head.height + 1}, not {event}")
    chain.open, chain.log = Open(), copy_of(_last(state).log)
    for tx in waiting:
        _add(chain.open, tx)
        if (effect := again.get(tx.kind)) is not None:
            effect(state, tx)


def refund_again(state: Linked, tx: Tx) -> None:
    """A job that ended without a result gets its money back in the block that is open now."""
    queue.refund_again(state, TaskId(tx.subject), tx.number)


def add_result(state: Linked, leaf: bytes) -> None:
    """RES-008: a result's leaf is in the block that resolves it and in the log of all results."""
    hashed = leaf_hash(leaf)
    state.chain.open.results.append(hashed)
    state.chain.log.append(hashed)
