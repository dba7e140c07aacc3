"""Whether money may move: each command against the books, to events or a named refusal."""

from __future__ import annotations

import re
from typing import Final

from holdfast.core import claim
from holdfast.core.escrow.acts import (
    Charge,
    Charged,
    Finalize,
    Finalized,
    Mint,
    Minted,
    Refund,
    Refunded,
    Reserve,
    Reserved,
    RollBack,
    Undone,
    hold_key,
    mint_key,
    settlement_key,
)
from holdfast.core.escrow.books import (
    AMOUNT_MAX,
    HOLD_LIFE,
    MINT,
    NO_ROW,
    Account,
    Books,
    Hold,
    HoldAct,
    HoldStatus,
    Ledger,
)
from holdfast.core.event import Attachment, Decided, Payload, enclose
from holdfast.core.machine import why_not_step
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Height, Network

MEMO_BYTES_MAX: Final = 1 << 20
_ACCOUNT_NAME: Final = re.compile(r"[a-z0-9][a-z0-9:._-]{0,127}")


def mint(state: Books, command: Mint, _now_ms: int) -> Decided | Refused:
    if (
        no := _why_not_account(state.ledger, command.owner)
        or _why_not_amount(command.amount)
        or _why_not_id(command.id)
    ):
        return no
    if state.policy.network is not Network.DEVELOPMENT:
        return _no("only a development network mints", 'set network = "development" or fund the account otherwise')
    event = Minted(command.id, command.owner, command.amount)
    if known := claim.why_not_first(state.claims, mint_key(event), event):
        return known
    if command.amount > AMOUNT_MAX + _balance(state.ledger, MINT).available:
        return _no(f"more than {AMOUNT_MAX} would exist")
    return Decided((event,))


def reserve(state: Books, command: Reserve, _now_ms: int) -> Decided | Refused:
    if (
        no := _why_not_account(state.ledger, command.owner)
        or _why_not_amount(command.amount)
        or _why_not_id(command.id)
    ):
        return no
    memo, attachments = _memo(command.memo, state.policy.engine.inline_payload_bytes_max)
    event = Reserved(command.id, command.owner, command.amount, memo)
    if known := claim.why_not_first(state.claims, hold_key(event), event):
        return known
    if len(command.memo) > MEMO_BYTES_MAX:
        return Refused("ENG-007", f"memo: {len(command.memo)} bytes, at most {MEMO_BYTES_MAX}")
    available = _balance(state.ledger, command.owner).available
    if available < command.amount:
        return Refused(
            "ESC-001",
            f"{command.owner} has {available} available, {command.amount} asked for",
            "pending money becomes available when its block is final",
            name="InsufficientFunds",
        )
    return Decided((event,), attachments)


def charge(state: Books, command: Charge, _now_ms: int) -> Decided | Refused:
    if no := _why_not_account(state.ledger, command.payee):
        return no
    hold, height = state.ledger.holds.get(command.id), command.height or state.open_height
    event = Charged(command.id, height, command.payee, command.amount)
    if hold is None:
        return _settled_before(state, command, event) or _no_hold(command.id)
    same = (HoldStatus.CHARGED, command.height or hold.height, command.payee, command.amount)
    if (hold.status, hold.height, hold.payee, hold.charged) == same:
        return Decided((), since=hold.settled)
    if no := _why_not_settle(state.ledger, hold, HoldAct.CHARGE, height):
        return no
    if not 0 <= command.amount <= hold.amount:
        return _no(f"{command.amount} is not between 0 and the {hold.amount} reserved")
    return Decided((event,))


def refund(state: Books, command: Refund, _now_ms: int) -> Decided | Refused:
    hold, height = state.ledger.holds.get(command.id), command.height or state.open_height
    event = Refunded(command.id, height)
    if hold is None:
        return _settled_before(state, command, event) or _no_hold(command.id)
    if (hold.status, hold.height) == (HoldStatus.REFUNDED, command.height or hold.height):
        return Decided((), since=hold.settled)
    return _why_not_settle(state.ledger, hold, HoldAct.REFUND, height) or Decided((event,))


def _settled_before(state: Books, command: Charge | Refund, event: Charged | Refunded) -> Decided | Refused | None:
    """The first answer again. Who leaves the height to the chain cannot know in which block it was, nor need to."""
    key = settlement_key(command)
    if not command.height and (number := state.claims.event_of(key)) is not None:
        return Decided((), since=number)
    return claim.why_not_first(state.claims, key, event)


def settlement_asked_for(state: Books, command: Charge | Refund) -> bytes | None:
    """The claim that tells whether a settlement was made before; an open hold says so itself."""
    return None if command.id in state.ledger.holds else settlement_key(command)


def finalize(state: Books, command: Finalize, _now_ms: int) -> Decided | Refused:
    if not 0 <= command.height <= AMOUNT_MAX:
        return Refused("ESC-002", f"height: {command.height} is not a height")
    if command.height <= state.ledger.finalized:
        return Decided((), since=state.last_event)
    return Decided((Finalized(command.height),))


def roll_back(state: Books, command: RollBack, _now_ms: int) -> Decided | Refused:
    if command.height < state.ledger.finalized:
        return Refused("ESC-002", f"blocks up to {state.ledger.finalized} are final", "only later ones can be undone")
    above = [height for height in reversed(state.ledger.settled) if height > command.height]
    return Decided(tuple(Undone(height) for height in above), since=None if above else state.last_event)


def _memo(raw: bytes, inline_bytes_max: int) -> tuple[Payload | None, tuple[Attachment, ...]]:
    return enclose(raw, inline_bytes_max) if raw else (None, ())


def _why_not_settle(ledger: Ledger, hold: Hold, act: HoldAct, height: Height) -> Refused | None:
    if hold.event == NO_ROW:
        return _no(f"hold {hold.id.hex()} is a job's: it is settled by the job's end")
    if why := why_not_step(HOLD_LIFE, hold.status, act):
        return _no(f"hold {hold.id.hex()}: {why}")
    if not ledger.finalized < height <= AMOUNT_MAX:
        return Refused("ESC-002", f"block {height} is final and settles nothing any more")
    tip = next(reversed(ledger.settled), Height(0))
    if height < tip:
        return Refused("ESC-002", f"block {height} is below {tip}, where money was settled already")
    return None


def _why_not_account(ledger: Ledger, owner: AccountId) -> Refused | None:
    if owner == MINT:
        return _no("the mint is nobody's account")
    if owner not in ledger.accounts and not _ACCOUNT_NAME.fullmatch(owner):
        return _no(f"{owner!r:.80} is not an account", "1–128 of a-z 0-9 : . _ - and not a sign in front")
    return None


def _why_not_amount(amount: int) -> Refused | None:
    return None if 0 < amount <= AMOUNT_MAX else _no(f"amount: {amount} is not in 1 … {AMOUNT_MAX}")


def _why_not_id(id_: bytes) -> Refused | None:
    return None if len(id_) == 32 else _no(f"id: {len(id_)} bytes, must be 32")


def _no(says: str, hint: str = "") -> Refused:
    return Refused("ESC-001", says, hint)


def _no_hold(id_: bytes) -> Refused:
    return Refused("ESC-001", f"no open hold {id_.hex()}", "it was never made", name="NotFound")


def _balance(ledger: Ledger, owner: AccountId) -> Account:
    return ledger.accounts.get(owner) or Account(owner)
