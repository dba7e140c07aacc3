"""Money as the state keeps it: accounts with three buckets, reservations with their transition table, the ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import I64_MAX, AccountId, Amount, Digest, EventNo, Height, ReservationId
from holdfast.core.index.packed_records import PackedRecords
from holdfast.core.index.touch import Touched
from holdfast.core.index.unique_ids import Claims
from holdfast.core.policy import Policy

MINT: Final = AccountId("mint")
"""The source of all money: the only account below zero."""
AMOUNT_MAX: Final = I64_MAX
"""The most money that can ever exist, so that every balance fits a column."""
NO_ROW: Final = EventNo(0)
"""The `event` of a reservation that is part of a job's own row."""


class ReservationStatus(StrEnum):
    """Where the money of a reservation is."""

    HELD = "HELD"
    CHARGED = "CHARGED"
    REFUNDED = "REFUNDED"
    PAID = "PAID"
    RETURNED = "RETURNED"


class ReservationTransition(StrEnum):
    """What can happen to a reservation."""

    CHARGE = "charge"
    REFUND = "refund"
    ROLL_BACK = "undo"
    FINALIZE = "finalize"


FINAL_STATUSES: Final = frozenset({ReservationStatus.PAID, ReservationStatus.RETURNED})
RESERVATION_TRANSITIONS: Final[Transitions[ReservationStatus, ReservationTransition]] = {
    ReservationStatus.HELD: {
        ReservationTransition.CHARGE: ReservationStatus.CHARGED,
        ReservationTransition.REFUND: ReservationStatus.REFUNDED,
    },
    ReservationStatus.CHARGED: {
        ReservationTransition.ROLL_BACK: ReservationStatus.HELD,
        ReservationTransition.FINALIZE: ReservationStatus.PAID,
    },
    ReservationStatus.REFUNDED: {
        ReservationTransition.ROLL_BACK: ReservationStatus.HELD,
        ReservationTransition.FINALIZE: ReservationStatus.RETURNED,
    },
    ReservationStatus.PAID: {},
    ReservationStatus.RETURNED: {},
}


class Account(msgspec.Struct, array_like=True, gc=False):
    """One owner's three buckets; a row of the table `account`."""

    owner: AccountId
    available: int = 0
    held: int = 0
    pending: int = 0


class Reservation(msgspec.Struct, array_like=True, gc=False):
    """One reservation; a row of the table `reservation` under the event that made it."""

    event: EventNo
    id: ReservationId
    owner: AccountId
    amount: Amount
    memo_size: int = 0
    memo_digest: Digest | None = None
    status: ReservationStatus = ReservationStatus.HELD
    charged: int = 0
    payee: AccountId | None = None
    height: Height | None = None
    settled: EventNo | None = None
    """The event that charged or refunded it."""


class TransferKind(StrEnum):
    """Which way money moved between an account and the outside world (ESC-003)."""

    DEPOSIT = "deposit"
    WITHDRAWAL = "withdrawal"
    RETURN = "return"


class TransferStatus(StrEnum):
    """How far a transfer is."""

    BOOKED = "BOOKED"
    """A deposit or a return: the money is available."""
    PENDING = "PENDING"
    """A withdrawal whose block is not final."""
    FINAL = "FINAL"
    """A withdrawal that is payable outside."""
    RETURNED = "RETURNED"
    """A withdrawal that was given back before it was payable."""


class Transfer(msgspec.Struct, array_like=True, gc=False):
    """A deposit, a withdrawal or the return of one; a row of the table `transfer` under its event."""

    event: EventNo
    reference: str
    kind: TransferKind
    owner: AccountId
    amount: Amount
    reason: str
    status: TransferStatus
    height: Height = Height(0)
    """Of a withdrawal's final block."""


Reservations = PackedRecords[ReservationId, Reservation]
"""Reservations by id; those of packed jobs follow from the jobs (`queue.live`)."""


class Ledger(msgspec.Struct):
    """All money. A settled reservation stays here until its block is final and the tables hold it (ENG-004)."""

    accounts: dict[AccountId, Account] = {}
    reservations: Reservations = msgspec.field(default_factory=PackedRecords)
    settled_by_height: dict[Height, list[ReservationId]] = {}
    """Settled reservations by block: heights ascending, each in the order of settlement."""
    final_reservations: dict[EventNo, list[ReservationId]] = {}
    """Reservations whose money is final and that are still in memory, by the event that made them final."""
    finalized_height: Height = Height(0)
    withdrawals: dict[str, Transfer] = {}
    """Withdrawals that are not payable yet, by reference."""
    reserved_total: int = 0
    charged_total: int = 0
    refunded_total: int = 0


def open_reservation(ledger: Ledger, id_: ReservationId) -> Reservation | None:
    """The reservation, while a settlement or a reorg can still move its money."""
    reservation = ledger.reservations.get(id_)
    return None if reservation is None or reservation.status in FINAL_STATUSES else reservation


class HasLedger(Protocol):
    """The parts of the state that this domain reads and changes."""

    policy: Policy
    ledger: Ledger
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...
