"""What an event does to the ledger: postings that sum to zero, then the reservation's own transition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.fsm import by_transition, why_not_transition
from holdfast.core.base.records import record_from
from holdfast.core.base.values import AccountId, Amount, EventNo, Height, ReservationId
from holdfast.core.escrow.messages import (
    Charged,
    Deposited,
    Finalized,
    Minted,
    Refunded,
    Reserved,
    SettlementsRolledBack,
    WithdrawalFinal,
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
    MINT,
    NO_ROW,
    RESERVATION_TRANSITIONS,
    Account,
    HasLedger,
    Ledger,
    Reservation,
    ReservationStatus,
    ReservationTransition,
    Transfer,
    TransferKind,
    TransferStatus,
)

CHARGE, REFUND = ReservationTransition.CHARGE, ReservationTransition.REFUND
K = TypeVar("K")
T = TypeVar("T")
Posting = tuple[AccountId, int, int, int]
"""Account and what is added to its available, held and pending; the postings of one event sum to zero (ESC-001)."""


def _paid_in(event: Minted | Deposited | WithdrawalReturned) -> Iterable[Posting]:
    return (MINT, -event.amount, 0, 0), (event.owner, event.amount, 0, 0)


def _unsettled(rolled_back: Iterable[Reservation]) -> Iterable[Posting]:
    return [
        (owner, -available, -held, -pending)
        for reservation in rolled_back
        for owner, available, held, pending in _settlement(
            reservation.owner, reservation.payee, reservation.amount, reservation.charged
        )
    ]


def _settlement(owner: AccountId, payee: AccountId | None, amount: int, charged: int) -> tuple[Posting, ...]:
    """Of one reservation, or of the sums of those that one owner's payee is paid from."""
    refund = (owner, 0, -amount, amount - charged)
    return (refund,) if payee is None else (refund, (payee, 0, 0, charged))


def _final_postings(reservation: Reservation) -> Iterable[Posting]:
    refunded = reservation.amount - reservation.charged
    for owner, amount in ((reservation.owner, refunded), (reservation.payee, reservation.charged)):
        if owner is not None and amount:
            yield owner, amount, 0, -amount


def _post(state: HasLedger, moves: Iterable[Posting]) -> None:
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


def apply_minted(state: HasLedger, event: Minted) -> None:
    _post(state, _paid_in(event))
    state.claims.add(mint_key(event), state.last_event, event)


def apply_deposited(state: HasLedger, event: Deposited) -> None:
    """ESC-003: available at once; the block that holds it says so for ever, but decides nothing."""
    _post(state, _paid_in(event))
    _book(state, event, TransferKind.DEPOSIT, TransferStatus.BOOKED)
    state.claims.add(transfer_key(event), state.last_event, event)


def apply_withdrawn(state: HasLedger, event: Withdrawn) -> None:
    """ESC-003: debited at once, payable when its block is final."""
    _post(state, ((event.owner, -event.amount, 0, 0), (MINT, event.amount, 0, 0)))
    transfer = _book(state, event, TransferKind.WITHDRAWAL, TransferStatus.PENDING)
    state.ledger.withdrawals[event.reference] = transfer
    state.claims.add(transfer_key(event), state.last_event, event)


def apply_returned(state: HasLedger, event: WithdrawalReturned) -> None:
    """A withdrawal that is returned before it is final never becomes payable."""
    _post(state, _paid_in(event))
    _book(state, event, TransferKind.RETURN, TransferStatus.BOOKED)
    if (pending := state.ledger.withdrawals.pop(event.reference, None)) is not None:
        pending.status = TransferStatus.RETURNED
        state.touched["transfer"][pending.event] = pending
    state.claims.add(return_key(event.reference), state.last_event, event)


def apply_withdrawal_final(state: HasLedger, event: WithdrawalFinal) -> None:
    transfer = state.ledger.withdrawals.pop(event.reference)
    transfer.status, transfer.height = TransferStatus.FINAL, event.height
    state.touched["transfer"][transfer.event] = transfer


def schedule_withdrawals(state: HasLedger, height: Height, references: Iterable[str]) -> None:
    """The block of this height, which is final, has these withdrawals: an event of each follows."""
    for reference in references:
        if (transfer := state.ledger.withdrawals.get(reference)) is not None:
            transfer.height = height
            state.touched["transfer"][transfer.event] = transfer


def _book(
    state: HasLedger, event: Deposited | Withdrawn | WithdrawalReturned, kind: TransferKind, status: TransferStatus
) -> Transfer:
    transfer = record_from(Transfer, event, event=state.last_event, kind=kind, status=status)
    state.touched["transfer"][transfer.event] = transfer
    return transfer


def apply_reserved(state: HasLedger, event: Reserved) -> None:
    ledger, number, memo = state.ledger, state.last_event, event.memo
    _post(state, ((event.owner, -event.amount, event.amount, 0),))
    reservation = Reservation(number, event.id, event.owner, event.amount)
    if memo is not None:
        reservation.memo_size, reservation.memo_digest = memo.size, memo.digest
    ledger.reservations[event.id] = state.touched["reservation"][number] = reservation
    ledger.reserved_total += event.amount
    state.claims.add(reservation_key(event.id), state.last_event, event)


def reserve_for(state: HasLedger, wanted: Iterable[tuple[ReservationId, AccountId, Amount]]) -> None:
    """Reserve the fees of jobs. A fee is part of its job's row: the reservation has no row, event or claim itself."""
    reservations, sums = state.ledger.reservations.records, dict[AccountId, int]()
    for id_, owner, amount in wanted:
        reservations[id_] = Reservation(NO_ROW, id_, owner, amount)
        sums[owner] = sums.get(owner, 0) + amount
    _post(state, [(owner, -amount, amount, 0) for owner, amount in sums.items()])
    state.ledger.reserved_total += sum(sums.values())


def raise_reservation(state: HasLedger, id_: ReservationId, more: int) -> None:
    reservation = state.ledger.reservations[id_]
    _post(state, ((reservation.owner, -more, more, 0),))
    reservation.amount = Amount(reservation.amount + more)
    state.ledger.reserved_total += more


def lower_reservation(state: HasLedger, id_: ReservationId, less: int) -> None:
    """Return a part of a reservation that no block decides on; an empty reservation is deleted."""
    reservation = state.ledger.reservations[id_]
    _post(state, ((reservation.owner, less, -less, 0),))
    state.ledger.refunded_total += less
    _reduce(state.ledger, reservation, less)


def split_reservation(state: HasLedger, id_: ReservationId, part: ReservationId, amount: int) -> None:
    """Make a part of a reservation a separate one; no money moves."""
    reservation = state.ledger.reservations[id_]
    state.ledger.reservations[part] = Reservation(NO_ROW, part, reservation.owner, Amount(amount))
    _reduce(state.ledger, reservation, amount)


def _reduce(ledger: Ledger, reservation: Reservation, less: int) -> None:
    reservation.amount = Amount(reservation.amount - less)
    if not reservation.amount:
        del ledger.reservations[reservation.id]


def apply_charged(state: HasLedger, event: Charged) -> None:
    settle_all(state, event.height, [(state.last_event, event.id, event.payee, event.charged)])


def apply_refunded(state: HasLedger, event: Refunded) -> None:
    settle_all(state, event.height, [(state.last_event, event.id, None, Amount(0))])


Settlement = tuple[EventNo, ReservationId, AccountId | None, int]
"""The event that settles a reservation, the reservation, the payee and the amount; without a payee it is refunded."""


def settle_all(state: HasLedger, height: Height, settlements: Sequence[Settlement]) -> None:
    """Charge or refund reservations in the block of this height, in this order; what one pays another, at once."""
    ledger, sums = state.ledger, dict[tuple[AccountId, AccountId | None], list[int]]()
    ids = [id_ for _, id_, _, _ in settlements]
    for (number, _, payee, charged), reservation in zip(settlements, ledger.reservations.all_of(ids), strict=True):
        reservation.status = _after(reservation, REFUND if payee is None else CHARGE)
        reservation.charged, reservation.payee, reservation.height, reservation.settled = charged, payee, height, number
        if (paid := sums.get((reservation.owner, payee))) is None:
            paid = sums[reservation.owner, payee] = [0, 0]
        paid[0] += reservation.amount
        paid[1] += charged
        if reservation.event != NO_ROW:
            _touch(state, reservation)
    for (owner, payee), (amount, charged) in sums.items():
        _post(state, _settlement(owner, payee, amount, charged))
        ledger.charged_total += charged
        ledger.refunded_total += amount - charged
    ledger.settled_by_height.setdefault(height, []).extend(ids)


def apply_finalized(state: HasLedger, event: Finalized) -> None:
    settled_by_height = state.ledger.settled_by_height
    heights = [height for height in settled_by_height if height <= event.height]
    _make_final(state, [id_ for height in heights for id_ in settled_by_height.pop(height)])
    state.ledger.finalized_height = event.height


def finalize_some(state: HasLedger, count: int, final: Height) -> None:
    """ESC-002: the next settlements of final blocks become available, the oldest first."""
    _make_final(state, pop_oldest(state.ledger.settled_by_height, count, lambda height: height <= final))


def _make_final(state: HasLedger, ids: list[ReservationId]) -> None:
    """The money moves; the reservations stay in memory until the tables hold them (ENG-004)."""
    ledger = state.ledger
    settled = [ledger.reservations[id_] for id_ in ids]
    _post(state, (posting for reservation in settled for posting in _final_postings(reservation)))
    for reservation in settled:
        reservation.status = _after(reservation, ReservationTransition.FINALIZE)
        if reservation.event != NO_ROW:
            _claim_settlement(state, reservation)
        _touch(state, reservation)
    if ids:
        ledger.final_reservations[state.last_event] = ids


def evict_final(state: HasLedger, count: int, as_of: EventNo) -> list[ReservationId]:
    """The oldest final reservations leave memory, up to those that were made final by the event `as_of`."""
    ledger = state.ledger
    evicted = pop_oldest(ledger.final_reservations, count, lambda event: event <= as_of)
    for id_ in evicted:
        del ledger.reservations[id_]
    return evicted


def pop_oldest(lists: dict[K, list[T]], count: int, is_due: Callable[[K], bool]) -> list[T]:
    """Remove the first entries, at most `count`, of the lists whose key is due."""
    popped: list[T] = []
    for key in [each for each in lists if is_due(each)]:
        entries, room = lists[key], count - len(popped)
        popped += entries[:room]
        if len(entries) > room:
            lists[key] = entries[room:]
            break
        del lists[key]
    return popped


def _claim_settlement(state: HasLedger, reservation: Reservation) -> None:
    """ENG-005: the same settlement, requested again at any later time, gets the first answer."""
    assert reservation.settled is not None
    assert reservation.height is not None
    event = settlement_event(reservation.id, reservation.height, reservation.payee, reservation.charged)
    state.claims.add(settlement_key(event), reservation.settled, event)


def apply_settlements_rolled_back(state: HasLedger, event: SettlementsRolledBack) -> None:
    roll_back_settlements(state, event.height, len(state.ledger.settled_by_height[event.height]))


def roll_back_settlements(state: HasLedger, height: Height, count: int) -> None:
    """Undo up to `count` settlements of a block, the last ones first."""
    ledger = state.ledger
    ids = ledger.settled_by_height.get(height, [])
    last = [ledger.reservations[id_] for id_ in reversed(ids[-count:])]
    _post(state, _unsettled(last))
    if last:
        del ids[-count:]
    if not ids:
        ledger.settled_by_height.pop(height, None)
    for reservation in last:
        ledger.charged_total -= reservation.charged
        ledger.refunded_total -= reservation.amount - reservation.charged
        reservation.status = _after(reservation, ReservationTransition.ROLL_BACK)
        reservation.charged, reservation.payee, reservation.height, reservation.settled = 0, None, None, None
        _touch(state, reservation)


def _touch(state: HasLedger, reservation: Reservation) -> None:
    if reservation.event != NO_ROW:
        state.touched["reservation"][reservation.event] = reservation


_AFTER: Final = by_transition(RESERVATION_TRANSITIONS)


def _after(reservation: Reservation, transition: ReservationTransition) -> ReservationStatus:
    after = _AFTER[transition].get(reservation.status)
    if after is None:
        why = why_not_transition(RESERVATION_TRANSITIONS, reservation.status, transition)
        raise Corrupt("ESC-001", f"reservation {reservation.id.hex()}: {why}")
    return after
