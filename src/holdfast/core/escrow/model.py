"""Money as the state keeps it: accounts with three buckets, reservations with their transition table, the ledger."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.base.fsm import Transitions
from holdfast.core.base.values import I64_MAX, AccountId, Amount, Digest, EventNo, Height, ReservationId
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


class Ledger(msgspec.Struct):
    """All money. Settled reservations stay here until their block is final, since a reorg may reverse them."""

    accounts: dict[AccountId, Account] = {}
    reservations: dict[ReservationId, Reservation] = {}
    settled_by_height: dict[Height, list[ReservationId]] = {}
    """Settled reservations by block: heights ascending, each in the order of settlement."""
    finalized_height: Height = Height(0)
    reserved_total: int = 0
    charged_total: int = 0
    refunded_total: int = 0


class HasLedger(Protocol):
    """The parts of the state that this domain reads and changes."""

    policy: Policy
    ledger: Ledger
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...
