"""Deposits and withdrawals on every store: unique for ever, also for a later owner, and found by their reference."""

from __future__ import annotations

import pytest
from tests.core.blocks import SEAL, final_after
from tests.simulation.world import SimulatedClock, SimulatedFiles, stop_engine
from tests.storage.stores import JOURNALS, TABLES, Place

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.chain.messages import FinalizeSettlements
from holdfast.core.escrow.messages import Deposit, ReturnWithdrawal, Withdraw
from holdfast.core.escrow.model import TransferKind, TransferStatus
from holdfast.engine import queries
from holdfast.engine.loop import Engine

ALICE = AccountId("alice")
DEPOSIT = Deposit("wire-1", ALICE, Amount(70), "an invoice")
WITHDRAWAL = Withdraw("out-1", ALICE, Amount(30), "a payout")


@pytest.mark.rule("ESC-003", "ENG-005")
@pytest.mark.parametrize("store", sorted(TABLES))
async def test_what_came_in_and_went_out_is_booked_once_on_every_store(store: str, place: Place) -> None:
    open_journal, open_tables, files = JOURNALS[store](place), TABLES[store](place), SimulatedFiles()

    def owner() -> Engine:
        return Engine(open_journal(), open_tables(), files, SimulatedClock(), final_after(0))

    first = owner()
    await first.start()
    for command in (DEPOSIT, WITHDRAWAL, SEAL, FinalizeSettlements()):
        assert not isinstance(await first.submit(command), Refused)
    await stop_engine(first)

    second = owner()
    await second.start()
    for repeat in (DEPOSIT, WITHDRAWAL):
        outcome = await second.submit(repeat)
        assert not isinstance(outcome, Refused)
        assert outcome.is_repeat
    paid = await queries.transfer(second, "out-1", TransferKind.WITHDRAWAL)
    assert paid is not None
    assert (paid.status, paid.amount, paid.height) == (TransferStatus.FINAL, 30, 1)
    assert not isinstance(await second.submit(ReturnWithdrawal("out-1", "the bank refused it", paid)), Refused)
    await second.wait_tables()
    page = await queries.page(second, "transfer", {"owner": "alice"}, 0, 10)
    assert [(row.reference, row.kind.value, row.status.value) for row in page.rows] == [
        ("wire-1", "deposit", "BOOKED"),
        ("out-1", "withdrawal", "FINAL"),
        ("out-1", "return", "BOOKED"),
    ]
    assert second.undurable_state.ledger.accounts[ALICE].available == 70
    await stop_engine(second)
