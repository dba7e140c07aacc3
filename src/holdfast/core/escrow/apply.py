"""What an event does to the books: postings that sum to zero, then the reservation's own step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

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
from holdfast.core.escrow.books import HOLD_LIFE, MINT, NO_ROW, Account, Books, Hold, HoldAct, Ledger
from holdfast.core.event import Event
from holdfast.core.machine import step, why_not_step
from holdfast.core.refusal import Corrupt
from holdfast.core.values import AccountId, Amount, Height, HoldId

Posting = tuple[AccountId, int, int, int]
"""Account and what is added to its available, held and pending; the postings of one event sum to zero (ESC-001)."""


def postings(ledger: Ledger, event: Event) -> list[Posting]:
    """What `event` moves, asked before it is applied."""
    rule = _POSTINGS.get(type(event))
    return list(rule(ledger, event)) if rule else []


def _minted(_: Ledger, event: Minted) -> Iterable[Posting]:
    return (MINT, -event.amount, 0, 0), (event.owner, event.amount, 0, 0)


def _reserved(_: Ledger, event: Reserved) -> Iterable[Posting]:
    return ((event.owner, -event.amount, event.amount, 0),)


def _charged(ledger: Ledger, event: Charged) -> Iterable[Posting]:
    return _settlement(ledger.holds[event.id], event.payee, event.charged)


def _refunded(ledger: Ledger, event: Refunded) -> Iterable[Posting]:
    return _settlement(ledger.holds[event.id], None, 0)


def _finalized(ledger: Ledger, event: Finalized) -> Iterable[Posting]:
    return [p for hold in _settled_until(ledger, event.height) for p in _release(hold)]


def _undone(ledger: Ledger, event: Undone) -> Iterable[Posting]:
    undone = [ledger.holds[id_] for id_ in reversed(ledger.settled[event.height])]
    return [(who, -a, -h, -p) for hold in undone for who, a, h, p in _settlement(hold, hold.payee, hold.charged)]


_POSTINGS: Final[dict[type[Event], Callable[[Ledger, Any], Iterable[Posting]]]] = {
    Minted: _minted,
    Reserved: _reserved,
    Charged: _charged,
    Refunded: _refunded,
    Finalized: _finalized,
    Undone: _undone,
}


def _settlement(hold: Hold, payee: AccountId | None, charged: int) -> tuple[Posting, ...]:
    back = (hold.owner, 0, -hold.amount, hold.amount - charged)
    return (back,) if payee is None else (back, (payee, 0, 0, charged))


def _release(hold: Hold) -> Iterable[Posting]:
    for who, n in ((hold.owner, hold.amount - hold.charged), (hold.payee, hold.charged)):
        if who is not None and n:
            yield who, n, 0, -n


def _settled_until(ledger: Ledger, height: Height) -> list[Hold]:
    return [ledger.holds[id_] for h, ids in ledger.settled.items() if h <= height for id_ in ids]


def _post(state: Books, moves: Iterable[Posting]) -> None:
    accounts, touched = state.ledger.accounts, state.touched["account"]
    for owner, available, held, pending in moves:
        account = accounts.get(owner)
        if account is None:
            account = accounts[owner] = Account(owner)
        account.available += available
        account.held += held
        account.pending += pending
        if (account.available < 0 or account.held < 0 or account.pending < 0) and owner != MINT:
            raise _overdrawn(account, state.last_event)
        touched[owner] = account


def _overdrawn(account: Account, event: int) -> Corrupt:
    bucket = next(name for name in ("available", "held", "pending") if getattr(account, name) < 0)
    return Corrupt("ESC-001", f"{account.owner}.{bucket} would be {getattr(account, bucket)} after event {event}")


def apply_minted(state: Books, event: Minted) -> None:
    _post(state, _minted(state.ledger, event))
    state.claims.add(mint_key(event), state.last_event, event)


def apply_reserved(state: Books, event: Reserved) -> None:
    ledger, number, memo = state.ledger, state.last_event, event.memo
    _post(state, _reserved(ledger, event))
    hold = Hold(number, event.id, event.owner, event.amount)
    if memo is not None:
        hold.memo_size, hold.memo_digest = memo.size, memo.digest
    ledger.holds[event.id] = state.touched["hold"][number] = hold
    ledger.reserved_total += event.amount
    state.claims.add(hold_key(event), state.last_event, event)


def hold_for(state: Books, id_: HoldId, owner: AccountId, amount: Amount) -> None:
    """Reserve a job's fee. The job's own row tells of it, so this hold has no row, no event and no claim of its own."""
    _post(state, ((owner, -amount, amount, 0),))
    state.ledger.holds[id_] = Hold(NO_ROW, id_, owner, amount)
    state.ledger.reserved_total += amount


def raise_hold(state: Books, id_: HoldId, more: int) -> None:
    """Add to what is reserved for a job."""
    hold = state.ledger.holds[id_]
    _post(state, ((hold.owner, -more, more, 0),))
    hold.amount = Amount(hold.amount + more)
    state.ledger.reserved_total += more


def lower_hold(state: Books, id_: HoldId, less: int) -> None:
    """Give a part of a reservation back that no block decides on; one that is empty is gone."""
    hold = state.ledger.holds[id_]
    _post(state, ((hold.owner, less, -less, 0),))
    state.ledger.refunded_total += less
    _lessen(state.ledger, hold, less)


def split_hold(state: Books, id_: HoldId, part: HoldId, amount: int) -> None:
    """Make a part of a reservation one of its own; no money moves."""
    hold = state.ledger.holds[id_]
    state.ledger.holds[part] = Hold(NO_ROW, part, hold.owner, Amount(amount))
    _lessen(state.ledger, hold, amount)


def _lessen(ledger: Ledger, hold: Hold, less: int) -> None:
    hold.amount = Amount(hold.amount - less)
    if not hold.amount:
        del ledger.holds[hold.id]


def settle_for(
    state: Books, id_: HoldId, act: HoldAct, height: Height, payee: AccountId | None, charged: Amount
) -> None:
    """Charge or refund a job's fee in the block of this height."""
    _post(state, _settlement(state.ledger.holds[id_], payee, charged))
    _settle(state, id_, act, height, payee, charged)


def apply_charged(state: Books, event: Charged) -> None:
    _post(state, _charged(state.ledger, event))
    _settle(state, event.id, HoldAct.CHARGE, event.height, event.payee, event.charged)


def apply_refunded(state: Books, event: Refunded) -> None:
    _post(state, _refunded(state.ledger, event))
    _settle(state, event.id, HoldAct.REFUND, event.height, None, 0)


def apply_finalized(state: Books, event: Finalized) -> None:
    ledger = state.ledger
    _make_final(state, _settled_until(ledger, event.height))
    for height in [h for h in ledger.settled if h <= event.height]:
        del ledger.settled[height]
    ledger.finalized = event.height


def release(state: Books, count: int, final: Height) -> list[HoldId]:
    """ESC-002: so many settlements of final blocks become available, the oldest first."""
    ledger, taken = state.ledger, list[HoldId]()
    for height in [h for h in ledger.settled if h <= final]:
        ids, room = ledger.settled[height], count - len(taken)
        taken += ids[:room]
        if len(ids) <= room:
            del ledger.settled[height]
        else:
            ledger.settled[height] = ids[room:]
        if len(taken) >= count:
            break
    _make_final(state, [ledger.holds[id_] for id_ in taken])
    return taken


def _make_final(state: Books, settled: list[Hold]) -> None:
    ledger = state.ledger
    _post(state, (posting for hold in settled for posting in _release(hold)))
    for hold in settled:
        _move(hold, HoldAct.FINALIZE)
        if hold.event != NO_ROW:
            _claim_settlement(state, hold)
        _touch(state, hold)
        del ledger.holds[hold.id]


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


def undo(state: Books, height: Height) -> None:
    """Take back what a block settled, if it settled anything."""
    if height in state.ledger.settled:
        apply_undone(state, Undone(height))


def apply_undone(state: Books, event: Undone) -> None:
    ledger = state.ledger
    _post(state, _undone(ledger, event))
    for id_ in reversed(ledger.settled.pop(event.height)):
        hold = ledger.holds[id_]
        ledger.charged_total -= hold.charged
        ledger.refunded_total -= hold.amount - hold.charged
        _move(hold, HoldAct.UNDO)
        hold.charged, hold.payee, hold.height, hold.settled = 0, None, None, None
        _touch(state, hold)


def _settle(state: Books, id_: HoldId, act: HoldAct, height: Height, payee: AccountId | None, charged: int) -> None:
    ledger, hold = state.ledger, state.ledger.holds[id_]
    _move(hold, act)
    hold.charged, hold.payee, hold.height, hold.settled = charged, payee, height, state.last_event
    ledger.charged_total += charged
    ledger.refunded_total += hold.amount - charged
    ledger.settled.setdefault(height, []).append(id_)
    _touch(state, hold)


def _touch(state: Books, hold: Hold) -> None:
    if hold.event != NO_ROW:
        state.touched["hold"][hold.event] = hold


def _move(hold: Hold, act: HoldAct) -> None:
    after = step(HOLD_LIFE, hold.status, act)
    if after is None:
        raise Corrupt("ESC-001", f"hold {hold.id.hex()}: {why_not_step(HOLD_LIFE, hold.status, act)}")
    hold.status = after
