"""What must hold of money after every event (ESC-001)."""

from __future__ import annotations

from holdfast.core.escrow.model import MINT, Ledger, ReservationStatus


def broken_invariants(ledger: Ledger) -> list[str]:
    """ESC-001 as sums over the whole ledger: the invariants that do not hold."""
    accounts = ledger.accounts.values()
    held = sum(account.held for account in accounts)
    open_total = sum(
        reservation.amount
        for reservation in ledger.reservations.values()
        if reservation.status is ReservationStatus.HELD
    )
    checks = {
        "all accounts sum to zero": sum(a.available + a.held + a.pending for a in accounts) == 0,
        "held equals open reservations": held == open_total,
        "reserved = charged + refunded + held": ledger.reserved_total
        == ledger.charged_total + ledger.refunded_total + held,
        "every settled reservation is listed once": sorted(
            id_
            for lists in (ledger.settled_by_height, ledger.final_reservations)
            for ids in lists.values()
            for id_ in ids
        )
        == sorted(reservation.id for reservation in ledger.reservations.values() if reservation.settled is not None),
        "only the mint is below zero": all(
            min(a.available, a.held, a.pending) >= 0 for a in accounts if a.owner != MINT
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]
