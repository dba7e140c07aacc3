"""Money as the state keeps it: accounts with three buckets, reservations with their transition table, the ledger."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, MutableMapping, ValuesView
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


def reservation_for(id_: ReservationId, owner: AccountId, amount: int) -> Reservation:
    """The reservation of a job's fee, as it is from the admission to the end of the job."""
    return Reservation(NO_ROW, id_, owner, Amount(amount))


class PackedReservations(Protocol):
    """Reservations that follow from jobs which are kept as bytes; the queue has them."""

    def reservation_ids(self) -> KeysView[ReservationId]: ...
    def owner_and_amount(self, id_: ReservationId) -> tuple[AccountId, int]: ...
    def unpack_reservation(self, id_: ReservationId) -> Reservation: ...


class _NonePacked:
    """Where there is no queue."""

    def reservation_ids(self) -> KeysView[ReservationId]:
        return dict[ReservationId, None]().keys()

    def owner_and_amount(self, id_: ReservationId) -> tuple[AccountId, int]:
        raise KeyError(id_)

    def unpack_reservation(self, id_: ReservationId) -> Reservation:
        raise KeyError(id_)


class Reservations(MutableMapping[ReservationId, Reservation]):
    """Reservations by id. `[]` and `get` give the record itself. What only looks uses `peek`, `values` or `items`."""

    __slots__ = ("packed", "records")

    def __init__(self) -> None:
        self.records: dict[ReservationId, Reservation] = {}
        self.packed: PackedReservations = _NonePacked()

    def __getitem__(self, id_: ReservationId) -> Reservation:
        try:
            return self.records[id_]
        except KeyError:
            return self.packed.unpack_reservation(id_)

    def __setitem__(self, id_: ReservationId, reservation: Reservation) -> None:
        self.records[id_] = reservation

    def __delitem__(self, id_: ReservationId) -> None:
        del self.records[self[id_].id]

    def __contains__(self, id_: object) -> bool:
        return id_ in self.records or id_ in self.packed.reservation_ids()

    def __len__(self) -> int:
        return len(self.records) + len(self.packed.reservation_ids())

    def __iter__(self) -> Iterator[ReservationId]:
        yield from self.packed.reservation_ids()
        yield from self.records

    def peek(self, id_: ReservationId) -> Reservation | None:
        """The reservation to look at: of a packed job a copy. None where there is no such reservation."""
        if id_ in self.packed.reservation_ids():
            return reservation_for(id_, *self.packed.owner_and_amount(id_))
        return self.records.get(id_)

    def fields_of(self, id_: ReservationId) -> Reservation | tuple[object, ...]:
        """The record of a reservation; of a packed job its fields, as far as they are not trailing defaults."""
        record = self.records.get(id_)
        return (NO_ROW, id_, *self.packed.owner_and_amount(id_)) if record is None else record

    def values(self) -> _ReservationsToLookAt:
        """All reservations to look at: of packed jobs copies, each made when it is reached."""
        return _ReservationsToLookAt(self)

    def items(self) -> _ReservationItems:
        return _ReservationItems(self)


class _ReservationsToLookAt(ValuesView[Reservation]):
    _mapping: Reservations

    def __iter__(self) -> Iterator[Reservation]:
        packed = self._mapping.packed
        for id_ in packed.reservation_ids():
            yield reservation_for(id_, *packed.owner_and_amount(id_))
        yield from self._mapping.records.values()


class _ReservationItems(ItemsView[ReservationId, Reservation]):
    _mapping: Reservations

    def __iter__(self) -> Iterator[tuple[ReservationId, Reservation]]:
        for reservation in self._mapping.values():
            yield reservation.id, reservation


class Ledger(msgspec.Struct):
    """All money. A settled reservation stays here until its block is final and the tables hold it (ENG-004)."""

    accounts: dict[AccountId, Account] = {}
    reservations: Reservations = msgspec.field(default_factory=Reservations)
    settled_by_height: dict[Height, list[ReservationId]] = {}
    """Settled reservations by block: heights ascending, each in the order of settlement."""
    final_reservations: dict[EventNo, list[ReservationId]] = {}
    """Reservations whose money is final and that are still in memory, by the event that made them final."""
    finalized_height: Height = Height(0)
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
