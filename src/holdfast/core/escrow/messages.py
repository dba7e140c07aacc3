"""Commands and events of money."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.core.base.event import Command, Event, PayloadRef
from holdfast.core.base.values import AccountId, Amount, Height, ReservationId
from holdfast.core.escrow.model import Transfer


class Mint(Command, frozen=True):
    """Create money, on development networks."""

    id: bytes
    owner: AccountId
    amount: Amount


class Reserve(Command, frozen=True):
    """Reserve money; `memo` is the purpose and may be large."""

    id: ReservationId
    owner: AccountId
    amount: Amount
    memo: bytes = b""


class Charge(Command, frozen=True):
    """Pay `amount` of a reservation and refund the rest, in the block of this height (0: the open one)."""

    id: ReservationId
    height: Height
    payee: AccountId
    amount: Amount


class Refund(Command, frozen=True):
    """Refund a reservation, in the block of this height (0: the open one)."""

    id: ReservationId
    height: Height


class Finalize(Command, frozen=True):
    """Blocks up to this height are final."""

    height: Height


class RollBackSettlements(Command, frozen=True):
    """Undo what the blocks above this height settled."""

    height: Height


class Minted(Event, frozen=True, tag=16):
    """Money was created."""

    id: bytes
    owner: AccountId
    amount: Amount


class Reserved(Event, frozen=True, tag=17):
    """Money moved from available to held."""

    id: ReservationId
    owner: AccountId
    amount: Amount
    memo: PayloadRef | None = None


class Charged(Event, frozen=True, tag=18):
    """A block paid the payee and refunded the rest; both are pending."""

    id: ReservationId
    height: Height
    payee: AccountId
    charged: Amount


class Refunded(Event, frozen=True, tag=19):
    """A block refunded a whole reservation; the money is pending."""

    id: ReservationId
    height: Height


class Finalized(Event, frozen=True, tag=20):
    """What blocks up to this height settled is available now."""

    public_name: ClassVar = "blocksFinalized"

    height: Height


class SettlementsRolledBack(Event, frozen=True, tag=21):
    """What the block of this height settled was undone; its reservations are open again."""

    height: Height


class _TransferTerms(msgspec.Struct, frozen=True, gc=False):
    """What commands and events of transfers say (ESC-003)."""

    reference: str
    """Its name in the outside world, used once, for ever."""
    owner: AccountId
    amount: Amount
    reason: str


class Deposit(_TransferTerms, Command, frozen=True):
    """Book money that came in from outside."""


class Withdraw(_TransferTerms, Command, frozen=True):
    """Book money that goes out."""


class ReturnWithdrawal(Command, frozen=True):
    """Give a withdrawal that was not paid outside back to its account."""

    reference: str
    reason: str
    stored: Transfer | None = None
    """Its row, read by the caller; used only where it has left memory."""


class Deposited(_TransferTerms, Event, frozen=True, tag=22):
    """Money came in and is available: a transaction of the chain. A rollback never reverses it (ESC-003)."""


class Withdrawn(_TransferTerms, Event, frozen=True, tag=23):
    """Money left its account: a transaction of the chain. It is payable outside at `withdrawalFinal` (ESC-003)."""


class WithdrawalReturned(_TransferTerms, Event, frozen=True, tag=24):
    """A withdrawal was given back to its account: a transaction of the chain."""


class WithdrawalFinal(Event, frozen=True, tag=25):
    """The block of a withdrawal is final: whoever pays it outside may do so now, and only now (ESC-003)."""

    reference: str
    owner: AccountId
    amount: Amount
    height: Height


def transfer_key(transfer: Deposit | Withdraw | Deposited | Withdrawn) -> bytes:
    """ESC-003: a reference is unique for ever, whichever way the money went."""
    return b"x" + transfer.reference.encode()


def return_key(reference: str) -> bytes:
    return b"y" + reference.encode()


def mint_key(event: Mint | Minted) -> bytes:
    return b"m" + event.id


def reservation_key(id_: ReservationId) -> bytes:
    return b"h" + id_


def settlement_event(id_: ReservationId, height: Height, payee: AccountId | None, charged: int) -> Charged | Refunded:
    """What settles a reservation; without a payee it is refunded."""
    return Refunded(id_, height) if payee is None else Charged(id_, height, payee, Amount(charged))


def settlement_key(settled: Charge | Refund | Charged | Refunded) -> bytes:
    return b"s" + settled.id
