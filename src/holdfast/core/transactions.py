"""The events that are transactions of blocks (CHN-001): the kind of each, its subject and the content of its leaf."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Event
from holdfast.core.chain.model import TxKind
from holdfast.core.escrow.messages import Deposited, WithdrawalReturned, Withdrawn
from holdfast.core.proof.messages import ProofAccepted
from holdfast.core.provider.messages import ProviderSlashed, slash_tx_data
from holdfast.core.queue.messages import JobAdmitted, JobCancelled, JobExpired, JobFailed
from holdfast.core.queue.requeue import JobRequeued
from holdfast.core.result.messages import ResultConsumed
from holdfast.core.validator.messages import (
    ProposerSucceeded,
    ValidatorAdded,
    ValidatorRemoved,
    change_content,
    change_subject,
)


def _transfer_content(event: Deposited | Withdrawn | WithdrawalReturned) -> bytes:
    return canonical([event.owner, event.amount])


TRANSACTIONS: Final[dict[type[Event], tuple[TxKind, Callable[[Any], bytes], Callable[[Any], bytes]]]] = {
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
"""(kind, subject, content of the leaf), by event."""
