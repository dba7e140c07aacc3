"""Money comes in and goes out: once for each reference, available at once, payable when it is final (ESC-003)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.blocks import SEAL, final_after, rich, sealed
from tests.core.commands import done, refused

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount, ChainId, Height, Network
from holdfast.core.chain.header import genesis_hash
from holdfast.core.chain.messages import FinalizeSettlements, RollBackBlocks
from holdfast.core.chain.model import TxKind
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.escrow.messages import Deposit, Mint, ReturnWithdrawal, Withdraw
from holdfast.core.escrow.model import TransferStatus
from holdfast.core.policy import Policy, TreasuryPolicy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.core.workflows.finalize import has_pending_settlements
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

pytestmark = pytest.mark.rule("ESC-003")
ALICE = AccountId("alice")
PRODUCTION = Policy()


def deposit(reference: str = "wire-1", amount: int = 70) -> Deposit:
    return Deposit(reference, ALICE, Amount(amount), "an invoice")


def withdrawal(reference: str = "out-1", amount: int = 30) -> Withdraw:
    return Withdraw(reference, ALICE, Amount(amount), "a payout")


def available(state: State) -> int:
    assert broken_invariants(state.ledger) == []
    return state.ledger.accounts[ALICE].available


def kinds(state: State) -> list[TxKind]:
    return [tx.kind for tx in state.chain.open.txs]


def made_final(state: State) -> list[str]:
    """The withdrawals that become payable now."""
    before = set(state.ledger.withdrawals)
    if has_pending_settlements(state):
        done(state, FinalizeSettlements())
    return sorted(before - set(state.ledger.withdrawals))


def row_of(state: State, reference: str) -> Any:
    """The row of the first transfer with this reference."""
    rows: list[Any] = list(state.touched["transfer"].values())
    return next(row for row in rows if row.reference == reference)


def test_a_production_network_has_the_money_that_came_in_and_mints_none() -> None:
    state = State(PRODUCTION)
    assert refused(state, Mint(bytes(32), ALICE, Amount(5))).rule == "ESC-001"
    done(state, deposit())
    assert (available(state), kinds(state)) == (70, [TxKind.DEPOSIT])


def test_a_reference_is_booked_once_whichever_way_the_money_went() -> None:
    state = done(State(PRODUCTION), deposit())
    before = digest(state)
    done(state, deposit())
    assert digest(state) == before
    for other in (deposit(amount=71), withdrawal("wire-1")):
        assert refused(state, other).name == "IdReused"
    done(state, withdrawal())
    done(state, withdrawal())
    assert available(state) == 40
    assert refused(state, deposit("out-1")).name == "IdReused"


def test_a_rollback_includes_deposits_and_withdrawals_again_and_reverses_neither() -> None:
    state = rich()
    done(state, deposit())
    done(state, withdrawal())
    sealed(state)
    sealed(state)
    done(state, RollBackBlocks(Height(0)))
    assert (available(state), kinds(state)) == (140, [TxKind.DEPOSIT, TxKind.WITHDRAWAL])


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_withdrawal_is_payable_when_its_block_is_final_and_not_before(depth: int) -> None:
    state = done(rich(depth), withdrawal())
    for _ in range(depth):
        done(state, SEAL)
        assert made_final(state) == []
    assert row_of(state, "out-1").status is TransferStatus.PENDING
    done(state, SEAL)
    assert made_final(state) == ["out-1"]
    assert (row_of(state, "out-1").status, row_of(state, "out-1").height) == (TransferStatus.FINAL, 1)


def test_a_withdrawal_that_is_rolled_back_waits_for_its_new_block() -> None:
    state = done(rich(2), withdrawal())
    done(state, SEAL)
    done(state, SEAL)
    done(state, RollBackBlocks(Height(0)))
    for _ in range(2):
        done(state, SEAL)
        assert made_final(state) == []
    done(state, SEAL)
    assert made_final(state) == ["out-1"]


def test_a_withdrawal_that_was_not_paid_is_given_back_once() -> None:
    state = done(rich(0), withdrawal())
    done(state, SEAL)
    assert made_final(state) == ["out-1"]
    paid = row_of(state, "out-1")
    back = ReturnWithdrawal("out-1", "the bank refused it", paid)
    done(state, back)
    done(state, back)
    assert (available(state), kinds(state)) == (100, [TxKind.DEPOSIT])
    assert refused(state, ReturnWithdrawal("out-1", "again", paid)).name == "IdReused"
    assert refused(state, ReturnWithdrawal("out-2", "never made")).name == "NotFound"


def test_a_withdrawal_that_is_given_back_early_never_becomes_payable() -> None:
    state = done(rich(1), withdrawal())
    done(state, ReturnWithdrawal("out-1", "a mistake"))
    assert (available(state), row_of(state, "out-1").status) == (100, TransferStatus.RETURNED)
    for _ in range(3):
        done(state, SEAL)
        assert made_final(state) == []
    assert refused(state, ReturnWithdrawal("out-1", "again", row_of(state, "out-1"))).name == "IdReused"


@pytest.mark.rule("ESC-002")
def test_only_available_money_goes_out_and_policy_limits_one_transfer() -> None:
    state = rich()
    assert refused(state, withdrawal(amount=101)).name == "InsufficientFunds"
    tight = msgspec.structs.replace(final_after(5), treasury=TreasuryPolicy(deposit_max=9, withdrawal_max=8))
    done(state, AdoptPolicy(tight))
    for command in (deposit(amount=10), withdrawal(amount=9)):
        assert refused(state, command).rule == "ESC-003"
    done(state, deposit(amount=9))
    done(state, withdrawal(amount=8))
    assert available(state) == 101


@pytest.mark.parametrize(
    "command",
    [
        deposit(amount=0),
        deposit(amount=-1),
        withdrawal(amount=-5),
        deposit(reference=""),
        deposit(reference="r" * 129),
        deposit(reference="two\nlines"),
        Deposit("wire-9", ALICE, Amount(1), ""),
    ],
)
def test_a_malformed_transfer_is_invalid(command: Deposit) -> None:
    assert refused(rich(), command).name == "InvalidParams"


@pytest.mark.rule("ENG-003")
def test_waiting_withdrawals_are_part_of_a_snapshot() -> None:
    state = done(rich(), withdrawal())
    copy, _ = restore(snapshot(state, JournalHead(last=state.last_event)), state.policy)
    assert (copy.ledger.withdrawals, digest(copy)) == (state.ledger.withdrawals, digest(state))


def test_no_policy_makes_a_development_network_of_a_production_one_or_the_other_way() -> None:
    for ours, theirs in ((PRODUCTION, Policy.for_network(Network.DEVELOPMENT)), (final_after(2), PRODUCTION)):
        state = done(State(ours), AdoptPolicy(ours))
        assert (refused(state, AdoptPolicy(theirs)).rule, state.policy) == ("ESC-003", ours)
    assert len({genesis_hash(ChainId(chain), network) for chain in (1, 2) for network in Network}) == 4
