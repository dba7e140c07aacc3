"""Whether money may move: each command is checked against the ledger and gives events or a refusal."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided, make_payload
from holdfast.core.base.fsm import why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.base.values import ACCOUNT_NAME, I64_MAX, AccountId, Amount, Height, Network
from holdfast.core.escrow.messages import (
    Charge,
    Charged,
    Deposit,
    Deposited,
    Finalize,
    Finalized,
    Mint,
    Minted,
    Refund,
    Refunded,
    Reserve,
    Reserved,
    ReturnWithdrawal,
    RollBackSettlements,
    SettlementsRolledBack,
    Withdraw,
    WithdrawalReturned,
    Withdrawn,
    mint_key,
    reservation_key,
    return_key,
    settlement_event,
    settlement_key,
    transfer_key,
)
from holdfast.core.escrow.model import (
    AMOUNT_MAX,
    MINT,
    NO_ROW,
    RESERVATION_TRANSITIONS,
    HasLedger,
    Ledger,
    Reservation,
    ReservationStatus,
    ReservationTransition,
    TransferKind,
    open_reservation,
)
from holdfast.core.index import unique_ids

MEMO_BYTES_MAX: Final = 1 << 20
REFERENCE_MAX, REASON_MAX = 128, 200


def mint(state: HasLedger, command: Mint, _now_ms: int) -> Decided | Refused:
    if refusal := _why_not_terms(state.ledger, command):
        return refusal
    if state.policy.network is not Network.DEVELOPMENT:
        return _refuse("only a development network mints", "a treasurer deposits: `holdfast account deposit`")
    event = Minted(command.id, command.owner, command.amount)
    if earlier := unique_ids.check_unique(state.claims, mint_key(event), event):
        return earlier
    return _why_not_more(state.ledger, command.amount) or Decided((event,))


def _why_not_more(ledger: Ledger, amount: int) -> Refused | None:
    return _refuse(f"more than {AMOUNT_MAX} would exist") if amount > AMOUNT_MAX + available_of(ledger, MINT) else None


def deposit(state: HasLedger, command: Deposit, _now_ms: int) -> Decided | Refused:
    """ESC-003: the same reference again is the same deposit, however often it is told."""
    event = record_from(Deposited, command)
    return (
        _why_not_transfer(state, command, state.policy.treasury.deposit_max)
        or unique_ids.check_unique(state.claims, transfer_key(event), event)
        or _why_not_more(state.ledger, command.amount)
        or Decided((event,))
    )


def withdraw(state: HasLedger, command: Withdraw, _now_ms: int) -> Decided | Refused:
    """ESC-002, ESC-003: only money that is available, debited at once."""
    event = record_from(Withdrawn, command)
    return (
        _why_not_transfer(state, command, state.policy.treasury.withdrawal_max)
        or unique_ids.check_unique(state.claims, transfer_key(event), event)
        or check_funds(state.ledger, command.owner, command.amount)
        or Decided((event,))
    )


def return_withdrawal(state: HasLedger, command: ReturnWithdrawal, _now_ms: int) -> Decided | Refused:
    """ESC-003: once; who has paid it outside must not ask for this."""
    transfer = state.ledger.withdrawals.get(command.reference) or command.stored
    if transfer is None or transfer.kind is not TransferKind.WITHDRAWAL:
        return Refused("ESC-003", f"no withdrawal {command.reference!r:.80}", name="NotFound")
    event = WithdrawalReturned(command.reference, transfer.owner, transfer.amount, command.reason)
    return (
        _why_not_words(command.reference, command.reason)
        or unique_ids.check_unique(state.claims, return_key(command.reference), event)
        or Decided((event,))
    )


def _why_not_transfer(state: HasLedger, command: Deposit | Withdraw, highest: int) -> Refused | None:
    refusal = _why_not_account(state.ledger, command.owner) or why_not_amount(command.amount)
    if refusal or (refusal := _why_not_words(command.reference, command.reason)):
        return refusal
    if command.amount <= highest:
        return None
    return Refused("ESC-003", f"amount: {command.amount} is above {highest}", "policy.treasury limits one transfer")


def _why_not_words(reference: str, reason: str) -> Refused | None:
    if not (reference.isprintable() and 0 < len(reference) <= REFERENCE_MAX):
        return Refused("ESC-003", f"reference: 1–{REFERENCE_MAX} printable characters", name="InvalidParams")
    if not (reason.isprintable() and 0 < len(reason) <= REASON_MAX):
        return Refused("ESC-003", f"reason: 1–{REASON_MAX} printable characters", name="InvalidParams")
    return None


def reserve(state: HasLedger, command: Reserve, _now_ms: int) -> Decided | Refused:
    if refusal := _why_not_terms(state.ledger, command):
        return refusal
    inline_max = state.policy.engine.inline_payload_bytes_max
    memo, attachments = make_payload(command.memo, inline_max) if command.memo else (None, ())
    event = Reserved(command.id, command.owner, command.amount, memo)
    if earlier := unique_ids.check_unique(state.claims, reservation_key(event.id), event):
        return earlier
    if len(command.memo) > MEMO_BYTES_MAX:
        return Refused("ENG-007", f"memo: {len(command.memo)} bytes, at most {MEMO_BYTES_MAX}", name="TooLarge")
    return check_funds(state.ledger, command.owner, command.amount) or Decided((event,), attachments)


def available_of(ledger: Ledger, owner: AccountId) -> int:
    account = ledger.accounts.get(owner)
    return account.available if account is not None else 0


def check_funds(ledger: Ledger, owner: AccountId, amount: int) -> Refused | None:
    return why_no_funds(owner, available_of(ledger, owner), amount)


_ADD_MONEY: Final = (
    "add money with `holdfast account mint`, outside of a development network with `holdfast account deposit`; "
    "pending money becomes available when its block is final"
)


def why_no_funds(owner: AccountId, available: int, amount: int) -> Refused | None:
    """ESC-001: only available money can be reserved."""
    if available >= amount:
        return None
    return Refused("ESC-001", f"{owner} has {available} available, {amount} requested", _ADD_MONEY, "InsufficientFunds")


def charge(state: HasLedger, command: Charge, _now_ms: int) -> Decided | Refused:
    if refusal := _why_not_account(state.ledger, command.payee) or why_not_amount(command.amount, least=0):
        return refusal
    return _settle(state, command, ReservationTransition.CHARGE, command.payee, command.amount)


def refund(state: HasLedger, command: Refund, _now_ms: int) -> Decided | Refused:
    return _settle(state, command, ReservationTransition.REFUND, None, Amount(0))


def _settle(
    state: HasLedger,
    command: Charge | Refund,
    transition: ReservationTransition,
    payee: AccountId | None,
    charged: Amount,
) -> Decided | Refused:
    reservation, height = open_reservation(state.ledger, command.id), command.height or state.open_height
    event = settlement_event(command.id, height, payee, charged)
    if reservation is None:
        return _earlier_settlement(state, command, event)
    status = RESERVATION_TRANSITIONS[ReservationStatus.HELD][transition]
    same = (status, command.height or reservation.height, payee, charged)
    if (reservation.status, reservation.height, reservation.payee, reservation.charged) == same:
        return Decided((), repeat_of=reservation.settled)
    if refusal := _why_not_settle(state.ledger, reservation, transition, height):
        return refusal
    if charged > reservation.amount:
        return _refuse(f"{charged} is more than the {reservation.amount} reserved")
    return Decided((event,))


def _earlier_settlement(state: HasLedger, command: Charge | Refund, event: Charged | Refunded) -> Decided | Refused:
    """The first answer, for a repeat. A command without a height repeats the settlement of whatever block it was in."""
    key = settlement_key(command)
    if not command.height and (number := state.claims.event_of(key)) is not None:
        return Decided((), repeat_of=number)
    return unique_ids.check_unique(state.claims, key, event) or Refused(
        "ESC-001", f"no open reservation {command.id.hex()}", "it was never made", name="NotFound"
    )


def settlement_claim(state: HasLedger, command: Charge | Refund) -> tuple[bytes, ...]:
    """The claim of an earlier settlement; an open reservation has none."""
    return () if open_reservation(state.ledger, command.id) is not None else (settlement_key(command),)


def finalize(state: HasLedger, command: Finalize, _now_ms: int) -> Decided | Refused:
    if not 0 <= command.height <= I64_MAX:
        return Refused("ESC-002", f"height: {command.height} is not in 0 … {I64_MAX}", name="InvalidParams")
    if command.height <= state.ledger.finalized_height:
        return Decided((), repeat_of=state.last_event)
    return Decided((Finalized(command.height),))


def roll_back(state: HasLedger, command: RollBackSettlements, _now_ms: int) -> Decided | Refused:
    if command.height < state.ledger.finalized_height:
        return Refused(
            "ESC-002", f"blocks up to {state.ledger.finalized_height} are final", "only later ones can be rolled back"
        )
    above = [height for height in reversed(state.ledger.settled_by_height) if height > command.height]
    return Decided(
        tuple(SettlementsRolledBack(height) for height in above), repeat_of=None if above else state.last_event
    )


def _why_not_settle(
    ledger: Ledger, reservation: Reservation, transition: ReservationTransition, height: Height
) -> Refused | None:
    if reservation.event == NO_ROW:
        return _refuse(f"reservation {reservation.id.hex()} belongs to a job and is settled when the job ends")
    if why := why_not_transition(RESERVATION_TRANSITIONS, reservation.status, transition):
        return _refuse(f"reservation {reservation.id.hex()}: {why}")
    if not ledger.finalized_height < height <= I64_MAX:
        return Refused(
            "ESC-002", f"block {height} is final and settles nothing any more", "settle it in the open block"
        )
    latest = next(reversed(ledger.settled_by_height), Height(0))
    if height < latest:
        return Refused(
            "ESC-002", f"block {height} is below {latest}, which has settled money already", "settle it there"
        )
    return None


def _why_not_terms(ledger: Ledger, command: Mint | Reserve) -> Refused | None:
    refusal = _why_not_account(ledger, command.owner) or why_not_amount(command.amount)
    if refusal or len(command.id) == 32:
        return refusal
    return Refused("ESC-001", f"id: {len(command.id)} bytes, must be 32", name="InvalidParams")


def _why_not_account(ledger: Ledger, owner: AccountId) -> Refused | None:
    if owner == MINT:
        return _refuse("the mint account cannot be used")
    if owner not in ledger.accounts and not ACCOUNT_NAME.fullmatch(owner):
        hint = "1–128 of a-z 0-9 : . _ -, beginning with a letter or digit"
        return _refuse(f"{owner!r:.80} is not an account", hint)
    return None


def why_not_amount(amount: int, field: str = "amount", least: int = 1) -> Refused | None:
    """ESC-001: the one check of amounts that a request names, whatever the request is."""
    if least <= amount <= AMOUNT_MAX:
        return None
    return Refused("ESC-001", f"{field}: {amount} is not in {least} … {AMOUNT_MAX}", name="InvalidParams")


def _refuse(message: str, hint: str = "") -> Refused:
    return Refused("ESC-001", message, hint)
