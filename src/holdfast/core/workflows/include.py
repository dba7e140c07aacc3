"""Transactions enter the open block (CHN-002, CHN-004): the leaf of each, and what its inclusion does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

from holdfast.core.base.values import EventNo, ProviderId, TaskId
from holdfast.core.chain.model import Tx, TxKind
from holdfast.core.chain.transactions import append_txs, make_txs
from holdfast.core.provider.apply import include_slash
from holdfast.core.queue.apply import include_end
from holdfast.core.result.apply import include_consumptions, include_proofs
from holdfast.core.state import State

Included = Sequence[tuple[EventNo, Tx]]
"""Transactions of one kind, each with the event that includes it: its own, or the one of a rollback."""


def add_transactions(state: State, kind: TxKind, entries: Iterable[tuple[EventNo, bytes, bytes]]) -> None:
    """CHN-002: the events just applied (number, subject, content) are transactions of the open block.

    CHN-004: while a rollback runs they wait behind the transactions that were in a block before.
    """
    txs = make_txs(kind, entries)
    if state.chain.rollback is not None:
        state.chain.rollback.pool += txs
        return
    append_txs(state.chain.open, txs)
    if (effect := _EFFECTS.get(kind)) is not None:
        effect(state, [(tx.number, tx) for tx in txs])


def include_again(state: State, txs: Iterable[Tx]) -> None:
    """CHN-004: transactions of orphaned blocks, with the same effects as the first time."""
    for kind, group in groupby(txs, key=lambda tx: tx.kind):
        run = list(group)
        append_txs(state.chain.open, run)
        if (effect := _EFFECTS.get(kind)) is not None:
            effect(state, [(state.last_event, tx) for tx in run])


def _include_ends(state: State, included: Included) -> None:
    for number, tx in included:
        include_end(state, TaskId(tx.subject), tx.number, number)


def _include_slashes(state: State, included: Included) -> None:
    for number, tx in included:
        include_slash(state, ProviderId(tx.subject), tx.number, number)


_EFFECTS: Final[dict[TxKind, Callable[[State, Included], None]]] = {
    TxKind.CANCELLATION: _include_ends,
    TxKind.EXPIRY: _include_ends,
    TxKind.FAILURE: _include_ends,
    TxKind.PROOF: include_proofs,
    TxKind.SLASH: _include_slashes,
    TxKind.CONSUMPTION: include_consumptions,
}
"""The effects of being included in a block. An admission has none."""
