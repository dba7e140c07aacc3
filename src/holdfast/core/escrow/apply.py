"""What an event does to the books: postings that sum to zero, then the reservation's own step."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.escrow.acts import (
    Charged,
    Finalized,
    Minted,
    Refunded,
    Reserved,
    Undone,
    hold_key,
    mint_key,
    settlement_key,
)
from holdfast.core.escrow.books import HOLD_LIFE, MINT, Account, Books, Hold, HoldAct, Ledger
from holdfast.core.event import Event
from holdfast.core.machine import step, why_not_step
from holdfast.core.refusal import Corrupt
from holdfast.core.values import AccountId, Amount, Height, HoldId

Posting = tuple[AccountId, str, int]
"""Account, bucket and what is added to it; the postings of one event sum to zero (ESC-001)."""


def postings(ledger: Ledger, event: Event) -> list[Posting]:
    """What `event` moves, asked before it is applied."""
    match event:
        case Minted(_, owner, amount):
            return [(MINT, "available", -amount), (owner, "available", amount)]
        case Reserved(_, owner, amount):
            return [(owner, "available", -amount), (owner, "held", amount)]
        case Charged(id_, _, payee, charged):
            hold = ledger.holds[id_]
            return _settlement(hold, payee, charged)
        case Refunded(id_, _):
            hold = ledger.holds[id_]
            return _settlement(hold, None, 0)
        case Finalized(height):
            return [p for hold in _settled_until(ledger, height) for p in _release(hold)]
        case Undone(height):
            undone = [ledger.holds[id_] for id_ in reversed(ledger.settled[height])]
            return [
                (who, bucket, -n) for hold in undone for who, bucket, n in _settlement(hold, hold.payee, hold.charged)
            ]
    return []


def _settlement(hold: Hold, payee: AccountId | None, charged: int) -> list[Posting]:
    moves = [(hold.owner, "held", -hold.amount), (hold.owner, "pending", hold.amount - charged)]
    return [*moves, (payee, "pending", charged)] if payee is not None else moves


def _release(hold: Hold) -> Iterable[Posting]:
    for who, n in ((hold.owner, hold.amount - hold.charged), (hold.payee, hold.charged)):
        if who is not None and n:
            yield from ((who, "pending", -n), (who, "available", n))


def _settled_until(ledger: Ledger, height: Height) -> list[Hold]:
    return [ledger.holds[id_] for h, ids in ledger.settled.items() if h <= height for id_ in ids]


def _post(state: Books, event: Event) -> None:
    accounts, touched = state.ledger.accounts, state.touched["account"]
    for owner, bucket, n in postings(state.ledger, event):
        account = accounts.get(owner)
        if account is None:
            account = accounts[owner] = Account(owner)
        after = getattr(account, bucket) + n
        if after < 0 and owner != MINT:
            raise Corrupt("ESC-001", f"{owner}.{bucket} would be {after} after event {state.last_event}")
        setattr(account, bucket, after)
        touched[owner] = account


def apply_minted(state: Books, event: Minted) -> None:
    _post(state, event)
    state.claims.add(mint_key(event), state.last_event, event)


def apply_reserved(state: Books, event: Reserved) -> None:
    _post(state, event)
    memo = event.memo
    hold = Hold(state.last_event, event.id, event.owner, event.amount, *((memo.size, memo.digest) if memo else ()))
    state.ledger.holds[event.id] = hold
    state.ledger.reserved_total += event.amount
    state.touched["hold"][hold.event] = hold
    state.claims.add(hold_key(event), state.last_event, event)


def apply_charged(state: Books, event: Charged) -> None:
    _post(state, event)
    _settle(state, event.id, HoldAct.CHARGE, event.height, event.payee, event.charged)


def apply_refunded(state: Books, event: Refunded) -> None:
    _post(state, event)
    _settle(state, event.id, HoldAct.REFUND, event.height, None, 0)


def apply_finalized(state: Books, event: Finalized) -> None:
    ledger = state.ledger
    _post(state, event)
    for hold in _settled_until(ledger, event.height):
        _claim_settlement(state, hold)
        _move(hold, HoldAct.FINALIZE)
        state.touched["hold"][hold.event] = hold
        del ledger.holds[hold.id]
    for height in [h for h in ledger.settled if h <= event.height]:
        del ledger.settled[height]
    ledger.finalized = event.height


def _claim_settlement(state: Books, hold: Hold) -> None:
    """From now on for ever: who asks for this settlement again is answered as the first time."""
    assert hold.settled is not None
    assert hold.height is not None
    event: Charged | Refunded
    if hold.payee is None:
        event = Refunded(hold.id, hold.height)
    else:
        event = Charged(hold.id, hold.height, hold.payee, Amount(hold.charged))
    state.claims.add(settlement_key(event), hold.settled, event)


def apply_undone(state: Books, event: Undone) -> None:
    ledger = state.ledger
    _post(state, event)
    for id_ in reversed(ledger.settled.pop(event.height)):
        hold = ledger.holds[id_]
        ledger.charged_total -= hold.charged
        ledger.refunded_total -= hold.amount - hold.charged
        _move(hold, HoldAct.UNDO)
        hold.charged, hold.payee, hold.height, hold.settled = 0, None, None, None
        state.touched["hold"][hold.event] = hold


def _settle(state: Books, id_: HoldId, act: HoldAct, height: Height, payee: AccountId | None, charged: int) -> None:
    ledger, hold = state.ledger, state.ledger.holds[id_]
    _move(hold, act)
    hold.charged, hold.payee, hold.height, hold.settled = charged, payee, height, state.last_event
    ledger.charged_total += charged
    ledger.refunded_total += hold.amount - charged
    ledger.settled.setdefault(height, []).append(id_)
    state.touched["hold"][hold.event] = hold


def _move(hold: Hold, act: HoldAct) -> None:
    after = step(HOLD_LIFE, hold.status, act)
    if after is None:
        raise Corrupt("ESC-001", f"hold {hold.id.hex()}: {why_not_step(HOLD_LIFE, hold.status, act)}")
    hold.status = after
