"""Commands and events of money."""

from __future__ import annotations

from typing import ClassVar

from holdfast.core.base.event import Command, Event, PayloadRef
from holdfast.core.base.values import AccountId, Amount, Height, ReservationId


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

    public_name: ClassVar = "minted"

    id: bytes
    owner: AccountId
    amount: Amount


class Reserved(Event, frozen=True, tag=17):
    """Money moved from available to held."""

    public_name: ClassVar = "reserved"

    id: ReservationId
    owner: AccountId
    amount: Amount
    memo: PayloadRef | None = None


class Charged(Event, frozen=True, tag=18):
    """A block paid the payee and refunded the rest; both are pending."""

    public_name: ClassVar = "charged"

    id: ReservationId
    height: Height
    payee: AccountId
    charged: Amount


class Refunded(Event, frozen=True, tag=19):
    """A block refunded a whole reservation; the money is pending."""

    public_name: ClassVar = "refunded"

    id: ReservationId
    height: Height


class Finalized(Event, frozen=True, tag=20):
    """What blocks up to this height settled is available now."""

    public_name: ClassVar = "finalized"

    height: Height


class SettlementsRolledBack(Event, frozen=True, tag=21):
    """What the block of this height settled was undone; its reservations are open again."""

    public_name: ClassVar = "settlementsRolledBack"

    height: Height


def mint_key(event: Mint | Minted) -> bytes:
    return b"m" + event.id


def reservation_key(event: Reserve | Reserved) -> bytes:
    return b"h" + event.id


def settlement_key(settled: Charge | Refund | Charged | Refunded) -> bytes:
    return b"s" + settled.id
