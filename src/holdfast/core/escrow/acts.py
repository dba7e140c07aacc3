"""What can be asked of money and what then happened: the station's commands and events."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Event, Payload
from holdfast.core.values import AccountId, Amount, Height, HoldId


class Mint(msgspec.Struct, frozen=True, gc=False):
    """Make money out of nothing, on development networks."""

    id: bytes
    owner: AccountId
    amount: Amount


class Reserve(msgspec.Struct, frozen=True, gc=False):
    """Set money aside; `memo` says what for and may be large."""

    id: HoldId
    owner: AccountId
    amount: Amount
    memo: bytes = b""


class Charge(msgspec.Struct, frozen=True, gc=False):
    """In the block of this height (0: the open one), pay `amount` of a reservation out and give the rest back."""

    id: HoldId
    height: Height
    payee: AccountId
    amount: Amount


class Refund(msgspec.Struct, frozen=True, gc=False):
    """In the block of this height (0: the open one), give a reservation back."""

    id: HoldId
    height: Height


class Finalize(msgspec.Struct, frozen=True, gc=False):
    """Blocks up to this height cannot be taken back any more."""

    height: Height


class RollBack(msgspec.Struct, frozen=True, gc=False):
    """Take back what the blocks above this height settled."""

    height: Height


class Minted(Event, frozen=True, tag=16):
    """Money came into being."""

    id: bytes
    owner: AccountId
    amount: Amount


class Reserved(Event, frozen=True, tag=17):
    """Money moved from available to held."""

    id: HoldId
    owner: AccountId
    amount: Amount
    memo: Payload | None = None


class Charged(Event, frozen=True, tag=18):
    """A block paid the payee and gave the rest back; both pending."""

    id: HoldId
    height: Height
    payee: AccountId
    charged: Amount


class Refunded(Event, frozen=True, tag=19):
    """A block gave all of a reservation back; pending."""

    id: HoldId
    height: Height


class Finalized(Event, frozen=True, tag=20):
    """What blocks up to this height settled is available now."""

    height: Height


class Undone(Event, frozen=True, tag=21):
    """What the block of this height settled was taken back; its reservations hold again."""

    height: Height


def mint_key(event: Mint | Minted) -> bytes:
    return b"m" + event.id


def hold_key(event: Reserve | Reserved) -> bytes:
    return b"h" + event.id


def settlement_key(settled: Charge | Refund | Charged | Refunded) -> bytes:
    return b"s" + settled.id
