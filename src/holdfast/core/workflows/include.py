"""Transactions enter the open block (CHN-001, CHN-002, CHN-004): which events are some, and what inclusion does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Event
from holdfast.core.base.merkle import leaf_hash
from holdfast.core.base.values import EventNo, ProviderId, TaskId
from holdfast.core.chain.model import Tx, TxKind, tx_leaf
from holdfast.core.escrow.messages import Deposited, WithdrawalReturned, Withdrawn
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.provider.apply import include_slash
from holdfast.core.provider.messages import ProviderSlashed, slash_tx_data
from holdfast.core.queue.apply import include_end
from holdfast.core.queue.messages import JobAdmitted, JobCancelled, JobExpired, JobFailed
from holdfast.core.queue.requeue import JobRequeued
from holdfast.core.result.apply import include_consumptions, include_proofs
from holdfast.core.result.messages import ResultConsumed
from holdfast.core.state import State
from holdfast.core.validator.messages import (
    ProposerSucceeded,
    ValidatorAdded,
    ValidatorRemoved,
    change_content,
    change_subject,
)

Transaction = tuple[TxKind, Callable[[Any], bytes], Callable[[Any], bytes]]
"""What an event is as a transaction: its kind, its subject and the content of its leaf."""

Included = Sequence[tuple[EventNo, Tx]]
"""Transactions of one kind, each with the event that includes it: its own, or the one of a rollback."""


def _transfer_content(event: Deposited | Withdrawn | WithdrawalReturned) -> bytes:
    return canonical([event.owner, event.amount])


TRANSACTIONS: Final[dict[type[Event], Transaction]] = {
    JobAdmitted: (TxKind.ADMISSION, attrgetter("id"), attrgetter("request_hash")),
    JobRequeued: (TxKind.ADMISSION, attrgetter("id"), lambda event: event.job.request_hash),
    JobCancelled: (TxKind.CANCELLATION, attrgetter("id"), lambda event: event.reason.encode()),
    JobExpired: (TxKind.EXPIRY, attrgetter("id"), lambda event: event.reason.encode()),
    JobFailed: (TxKind.FAILURE, attrgetter("id"), lambda event: event.reason.encode()),
    ProofAccepted: (TxKind.PROOF, attrgetter("task_id"), lambda event: event.nullifier + event.digest),
    ResultConsumed: (TxKind.CONSUMPTION, attrgetter("task_id"), attrgetter("tx_hash")),
    Deposited: (TxKind.DEPOSIT, lambda event: event.reference.encode(), _transfer_content),
    WithdrawalReturned: (TxKind.DEPOSIT, lambda event: event.reference.encode(), _transfer_content),
    Withdrawn: (TxKind.WITHDRAWAL, lambda event: event.reference.encode(), _transfer_content),
    ValidatorAdded: (TxKind.VALIDATOR, change_subject, change_content),
    ValidatorRemoved: (TxKind.VALIDATOR, change_subject, change_content),
    ProposerSucceeded: (TxKind.VALIDATOR, change_subject, change_content),
    ProviderSlashed: (TxKind.SLASH, attrgetter("id"), slash_tx_data),
}
"""The events that are transactions of blocks (CHN-001)."""


def add_transactions(
    state: State, transaction: Transaction, events: Sequence[Event], numbers: Sequence[EventNo]
) -> None:
    """CHN-002: the events just applied are transactions of the open block.

    CHN-004: while a rollback runs they wait behind the transactions that were in a block before.
    """
    kind, subject, content = transaction
    txs = [
        Tx(number, kind, id_ := subject(event), leaf_hash(tx_leaf(kind, number, id_, content(event))))
        for number, event in zip(numbers, events, strict=True)
    ]
    if state.chain.rollback is not None:
        state.chain.rollback.pool += txs
        return
    _append(state, txs)
    if (effect := _EFFECTS.get(kind)) is not None:
        effect(state, [(tx.number, tx) for tx in txs])


def include_again(state: State, txs: Iterable[Tx]) -> None:
    """CHN-004: transactions of orphaned blocks, with the same effects as the first time."""
    for kind, group in groupby(txs, key=lambda tx: tx.kind):
        run = list(group)
        _append(state, run)
        if (effect := _EFFECTS.get(kind)) is not None:
            effect(state, [(state.last_event, tx) for tx in run])


def _append(state: State, txs: Sequence[Tx]) -> None:
    state.chain.open.txs += txs
    state.chain.open.tree.extend([tx.leaf for tx in txs])


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
