"""Transactions of the open block (CHN-001, CHN-002): their leaves, and how they enter it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.base.canonical import canonical, packed_bytes, packed_int
from holdfast.core.base.merkle import leaf_hash
from holdfast.core.base.values import EventNo, Height
from holdfast.core.chain.model import HasChain, OpenBlock, Tx, TxKind


def tx_leaf(kind: TxKind, number: EventNo, subject: bytes, content: bytes) -> bytes:
    """A transaction as a light client sees it: its kind, its event, its subject and the event's content.

    It equals `canonical([kind, number, subject, content])`, written out because every job needs it twice.
    """
    return _LEAF_PREFIX[kind] + packed_int(number) + packed_bytes(subject) + packed_bytes(content)


_LEAF_PREFIX: Final = {kind: b"\x84" + canonical(kind.value) for kind in TxKind}
"""The beginning of an array of four items, the first of which is the kind."""


def make_txs(kind: TxKind, entries: Iterable[tuple[EventNo, bytes, bytes]]) -> list[Tx]:
    """The transactions of events (number, subject, content)."""
    return [
        Tx(number, kind, subject, leaf_hash(tx_leaf(kind, number, subject, content)))
        for number, subject, content in entries
    ]


def append_txs(open_: OpenBlock, txs: Sequence[Tx]) -> None:
    open_.txs += txs
    open_.tree.extend([tx.leaf for tx in txs])


def pop_final_txs(state: HasChain, count: int, as_of: EventNo) -> list[tuple[Height, Tx]]:
    """Remove the next transactions of blocks that were final by `as_of` from memory; a block leaves with its last."""
    popped: list[tuple[Height, Tx]] = []
    for height, final in list(state.final_blocks.items()):
        room = count - len(popped)
        if final.event > as_of or room <= 0:
            break
        popped += [(height, tx) for tx in final.txs[:room]]
        if len(final.txs) <= room:
            del state.final_blocks[height]
        else:
            final.txs = final.txs[room:]
    return popped


def add_results(state: HasChain, leaves: Iterable[bytes]) -> None:
    """RES-008: a result's leaf is in the block that resolves it and in the log of all results."""
    hashes = [leaf_hash(leaf) for leaf in leaves]
    state.chain.open.results.extend(hashes)
    state.chain.log.extend(hashes)
