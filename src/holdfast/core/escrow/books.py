"""What is kept: accounts with three buckets, reservations and their life, the ledger, and what always holds of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from holdfast.core.claim import Claims
from holdfast.core.machine import Life
from holdfast.core.policy import Policy
from holdfast.core.touch import Touched
from holdfast.core.values import AccountId, Amount, Digest, EventNo, Height, HoldId

MINT: Final = AccountId("mint")
"""Where money comes from: the only account below zero."""
AMOUNT_MAX: Final = 2**63 - 1
"""All money there can ever be, so that every balance fits a signed 64-bit column."""


NO_ROW: Final = EventNo(0)
"""The `event` of a reservation that a job's own row tells of."""


class HoldStatus(StrEnum):
    """Where the money of a reservation is."""

    HELD = "HELD"
    CHARGED = "CHARGED"
    REFUNDED = "REFUNDED"
    PAID = "PAID"
    RETURNED = "RETURNED"


class HoldAct(StrEnum):
    """What can happen to a reservation."""

    CHARGE = "charge"
    REFUND = "refund"
    UNDO = "undo"
    FINALIZE = "finalize"


HOLD_LIFE: Final[Life[HoldStatus, HoldAct]] = {
    HoldStatus.HELD: {HoldAct.CHARGE: HoldStatus.CHARGED, HoldAct.REFUND: HoldStatus.REFUNDED},
    HoldStatus.CHARGED: {HoldAct.UNDO: HoldStatus.HELD, HoldAct.FINALIZE: HoldStatus.PAID},
    HoldStatus.REFUNDED: {HoldAct.UNDO: HoldStatus.HELD, HoldAct.FINALIZE: HoldStatus.RETURNED},
    HoldStatus.PAID: {},
    HoldStatus.RETURNED: {},
}


class Account(msgspec.Struct, array_like=True, gc=False):
    """One owner's three buckets; a row of the table `account`."""

    owner: AccountId
    available: int = 0
    held: int = 0
    pending: int = 0


class Hold(msgspec.Struct, array_like=True, gc=False):
    """One reservation; a row of the table `hold`, whose key is the event that made it."""

    event: EventNo
    id: HoldId
    owner: AccountId
    amount: Amount
    memo_size: int = 0
    memo_digest: Digest | None = None
    status: HoldStatus = HoldStatus.HELD
    charged: int = 0
    payee: AccountId | None = None
    height: Height | None = None
    settled: EventNo | None = None
    """The event that charged or refunded it."""


class Ledger(msgspec.Struct):
    """All money. What is settled stays here until its block is final, since a reorg may need to reverse it."""

    accounts: dict[AccountId, Account] = {}
    holds: dict[HoldId, Hold] = {}
    settled: dict[Height, list[HoldId]] = {}
    """Settlements by block, heights ascending, each in the order made."""
    finalized: Height = Height(0)
    reserved_total: int = 0
    charged_total: int = 0
    refunded_total: int = 0


class Books(Protocol):
    """What this station needs of the state."""

    policy: Policy
    ledger: Ledger
    claims: Claims
    touched: Touched
    last_event: EventNo

    @property
    def open_height(self) -> Height: ...


def broken_laws(ledger: Ledger) -> list[str]:
    """ESC-001 as sums over the whole ledger: empty when all is well."""
    accounts = ledger.accounts.values()
    held = sum(account.held for account in accounts)
    open_holds = sum(hold.amount for hold in ledger.holds.values() if hold.status is HoldStatus.HELD)
    checks = {
        "all accounts sum to zero": sum(a.available + a.held + a.pending for a in accounts) == 0,
        "held equals open reservations": held == open_holds,
        "reserved = charged + refunded + held": ledger.reserved_total
        == ledger.charged_total + ledger.refunded_total + held,
        "only the mint is below zero": all(
            min(a.available, a.held, a.pending) >= 0 for a in accounts if a.owner != MINT
        ),
    }
    return [law for law, holds in checks.items() if not holds]
