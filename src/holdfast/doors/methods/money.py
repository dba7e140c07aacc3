"""Money at the doors: balances and reservations to look at; on development networks a faucet; settling by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from holdfast.core.act import Act
from holdfast.core.escrow import acts
from holdfast.core.escrow.books import Account, Hold
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, Height, HoldId
from holdfast.doors.desk import OPERATORS, OWNERS, READERS, Desk, Method, Visitor, why_not_own
from holdfast.doors.pages import why_not_limit
from holdfast.engine import read
from holdfast.engine.outcome import Accepted

OPEN: Final = Height(0)
"""Settled in whichever block is open."""


class Done(msgspec.Struct, frozen=True):
    """The event that did it; for a repeat, the one that did it the first time."""

    event: int
    is_repeat: bool


class OneAccount(msgspec.Struct, frozen=True):
    """Whose account."""

    owner: AccountId


class OneHold(msgspec.Struct, frozen=True):
    """Which reservation."""

    id: HoldId


class ManyAccounts(msgspec.Struct, frozen=True):
    """A page of accounts, by name."""

    after: str = ""
    limit: int = 100


class ManyHolds(msgspec.Struct, frozen=True):
    """A page of reservations, by the event that made them, of one owner or in one status where given."""

    owner: str | None = None
    status: str | None = None
    after: int = 0
    limit: int = 100


class PayOut(msgspec.Struct, frozen=True):
    """Pay `amount` of a reservation to the payee in the open block and give the rest back."""

    id: HoldId
    payee: AccountId
    amount: Amount


class GiveBack(msgspec.Struct, frozen=True):
    """Give a reservation back in the open block."""

    id: HoldId


def act(name: str, command_of: Callable[[Any], object]) -> Callable[[Desk, Visitor, Any], Awaitable[object]]:
    """A handler for a privileged command, recorded under the visitor's name."""

    async def handle(desk: Desk, visitor: Visitor, asked: Any) -> object:
        return done(await desk.submit(Act(visitor.name, name, command_of(asked))))

    return handle


def done(outcome: Accepted | Refused) -> Done | Refused:
    return outcome if isinstance(outcome, Refused) else Done(outcome.event, outcome.is_repeat)


async def _account(desk: Desk, visitor: Visitor, asked: OneAccount) -> object:
    if no := why_not_own(visitor, asked.owner):
        return no
    found = await read.account(desk.source, asked.owner)
    return found or Refused("ESC-001", f"nobody has paid {asked.owner!r} yet", name="NotFound")


async def _hold(desk: Desk, visitor: Visitor, asked: OneHold) -> object:
    found = await read.hold(desk.source, asked.id)
    if found is None:
        return Refused("ESC-001", f"no hold {asked.id.hex()}", name="NotFound")
    return why_not_own(visitor, found.owner) or found


async def _accounts(desk: Desk, _: Visitor, asked: ManyAccounts) -> object:
    return why_not_limit(asked.limit) or await read.page(desk.source, "account", {}, asked.after, asked.limit)


async def _holds(desk: Desk, visitor: Visitor, asked: ManyHolds) -> object:
    owner = asked.owner if asked.owner is not None else visitor.account
    if owner is not None and (no := why_not_own(visitor, AccountId(owner))):
        return no
    match = {name: value for name, value in (("owner", owner), ("status", asked.status)) if value is not None}
    return why_not_limit(asked.limit) or await read.page(desk.source, "hold", match, asked.after, asked.limit)


def _charge(asked: PayOut) -> acts.Charge:
    return acts.Charge(asked.id, OPEN, asked.payee, asked.amount)


def _refund(asked: GiveBack) -> acts.Refund:
    return acts.Refund(asked.id, OPEN)


def _same(asked: object) -> object:
    return asked


def _by_hand(name: str, says: str, params: type[Any], command_of: Callable[[Any], object]) -> tuple[str, Method]:
    return name, Method(says, params, Done, act(name, command_of), OPERATORS, is_write=True)


METHODS: Final[dict[str, Method]] = dict(
    [
        _by_hand("account.mint", "Make money out of nothing, on development networks.", acts.Mint, _same),
        _by_hand("account.reserve", "Set money of an account aside.", acts.Reserve, _same),
        _by_hand("account.charge", "Pay a part of a reservation out in the open block.", PayOut, _charge),
        _by_hand("account.refund", "Give a reservation back in the open block.", GiveBack, _refund),
        ("account.show", Method("One account's money.", OneAccount, Account, _account, OWNERS)),
        ("account.list", Method("All accounts, by name.", ManyAccounts, read.Listing, _accounts, READERS)),
        ("hold.show", Method("One reservation.", OneHold, Hold, _hold, OWNERS)),
        ("hold.list", Method("Reservations, oldest first.", ManyHolds, read.Listing, _holds, OWNERS)),
    ]
)
