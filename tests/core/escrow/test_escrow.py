"""Money: what is reserved, charged, refunded, pending and final adds up, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.core.commands import done, empty, histories, run, some_id
from tests.core.reachable_states import unreachable_states

from holdfast.core import state_machine
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Command, Decided
from holdfast.core.base.values import AccountId, Amount, Height, Network
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.escrow.messages import Charge, Finalize, Finalized, Mint, Refund, Reserve, RollBackSettlements
from holdfast.core.escrow.model import AMOUNT_MAX, MINT, RESERVATION_TRANSITIONS, Account, ReservationStatus
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.state_digest import digest

ALICE, BOB = AccountId("alice"), AccountId("bob")
RESERVATION = some_id(1)


def rich(amount: int = 100) -> State:
    return done(empty(), Mint(some_id(99), ALICE, Amount(amount)))


def reserved(amount: int = 60) -> State:
    return done(rich(), Reserve(RESERVATION, ALICE, Amount(amount)))


def charged(amount: int = 40, height: int = 5) -> State:
    return done(reserved(), Charge(RESERVATION, Height(height), BOB, Amount(amount)))


def refused(state: State, command: Command) -> Refused:
    before = digest(state)
    outcome = run(state, command)
    assert isinstance(outcome, Refused), outcome
    assert digest(state) == before, "a refusal changes nothing"
    return outcome


def balance(state: State, owner: AccountId) -> Account:
    return state.ledger.accounts[owner]


@pytest.mark.rule("ESC-001")
@given(histories)
def test_every_posting_sums_to_zero_and_the_ledger_adds_up_after_every_event(
    history: list[Command],
) -> None:
    state = empty()
    for command in history:
        decided = state_machine.decide(state, command, 0)
        if isinstance(decided, Decided):
            for event in decided.events:
                state_machine.apply(state, event)
                assert broken_invariants(state.ledger) == []


@pytest.mark.rule("ESC-002")
@given(histories)
def test_rolling_back_all_that_is_not_final_leaves_every_open_reservation_held(
    history: list[Command],
) -> None:
    state = empty()
    for command in history:
        run(state, command)
    done(state, RollBackSettlements(state.ledger.finalized_height))
    assert state.ledger.settled_by_height == {}
    assert all(hold.status is ReservationStatus.HELD for hold in state.ledger.reservations.values())
    assert all(account.pending == 0 for account in state.ledger.accounts.values())
    assert broken_invariants(state.ledger) == []


@pytest.mark.rule("ESC-001")
def test_reserving_moves_available_to_held() -> None:
    assert balance(reserved(60), ALICE) == Account(ALICE, 40, 60, 0)


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize(("asked", "is_allowed"), [(99, True), (100, True), (101, False)])
def test_no_more_than_the_available_balance_can_be_reserved(asked: int, is_allowed: bool) -> None:
    outcome = run(rich(100), Reserve(RESERVATION, ALICE, Amount(asked)))
    assert isinstance(outcome, Refused) is not is_allowed
    if isinstance(outcome, Refused):
        assert (outcome.name, outcome.rule) == ("InsufficientFunds", "ESC-001")


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize(("amount", "is_allowed"), [(-1, False), (0, True), (59, True), (60, True), (61, False)])
def test_a_charge_is_between_nothing_and_what_was_reserved(amount: int, is_allowed: bool) -> None:
    outcome = run(reserved(60), Charge(RESERVATION, Height(5), BOB, Amount(amount)))
    assert isinstance(outcome, Refused) is not is_allowed
    if isinstance(outcome, Refused):
        assert outcome.name == ("InvalidParams" if amount < 0 else "Refused")


@pytest.mark.rule("ESC-001")
def test_a_charge_pays_the_payee_and_gives_the_rest_back_both_pending() -> None:
    state = charged(40)
    assert balance(state, BOB) == Account(BOB, 0, 0, 40)
    assert balance(state, ALICE) == Account(ALICE, 40, 0, 20)


@pytest.mark.rule("ESC-001")
def test_a_refund_gives_everything_back() -> None:
    state = done(reserved(60), Refund(RESERVATION, Height(5)))
    assert balance(state, ALICE) == Account(ALICE, 40, 0, 60)


@pytest.mark.rule("ESC-001")
def test_charging_oneself_costs_nothing() -> None:
    state = done(reserved(60), Charge(RESERVATION, Height(5), ALICE, Amount(40)))
    assert balance(done(state, Finalize(Height(5))), ALICE) == Account(ALICE, 100, 0, 0)


@pytest.mark.rule("ESC-002")
def test_pending_money_cannot_be_reserved_until_its_block_is_final() -> None:
    state = charged(40)
    assert refused(state, Reserve(some_id(2), BOB, Amount(1))).name == "InsufficientFunds"
    done(state, Finalize(Height(4)))
    assert refused(state, Reserve(some_id(2), BOB, Amount(1))).name == "InsufficientFunds"
    done(state, Finalize(Height(5)))
    assert balance(done(state, Reserve(some_id(2), BOB, Amount(40))), BOB) == Account(BOB, 0, 40, 0)


@pytest.mark.rule("ESC-002")
def test_a_reorg_rolls_the_charge_back_and_the_same_charge_can_be_made_in_another_block() -> None:
    state = charged(40, height=5)
    done(state, RollBackSettlements(Height(4)))
    assert balance(state, ALICE) == Account(ALICE, 40, 60, 0)
    assert balance(state, BOB) == Account(BOB, 0, 0, 0)
    done(state, Charge(RESERVATION, Height(7), BOB, Amount(40)))
    assert balance(done(state, Finalize(Height(7))), BOB) == Account(BOB, 40, 0, 0)


@pytest.mark.rule("ESC-002")
@pytest.mark.parametrize(("height", "undone"), [(4, True), (5, False), (6, False)])
def test_a_rollback_undoes_the_blocks_above_the_height_it_names(height: int, undone: bool) -> None:
    state = done(charged(40, height=5), RollBackSettlements(Height(height)))
    assert (state.ledger.reservations[RESERVATION].status is ReservationStatus.HELD) is undone


@pytest.mark.rule("ESC-002")
def test_blocks_are_undone_from_the_head_down() -> None:
    state = reserved(30)
    done(state, Reserve(some_id(2), ALICE, Amount(30)))
    done(state, Charge(RESERVATION, Height(5), BOB, Amount(1)))
    done(state, Refund(some_id(2), Height(6)))
    outcome = state_machine.decide(state, RollBackSettlements(Height(4)), 0)
    assert isinstance(outcome, Decided)
    assert [event.height for event in outcome.events] == [6, 5]  # type: ignore[attr-defined]


@pytest.mark.rule("ESC-002")
def test_what_is_final_can_be_neither_undone_nor_added_to() -> None:
    state = done(charged(40, height=5), Finalize(Height(5)))
    assert refused(state, RollBackSettlements(Height(4))).rule == "ESC-002"
    done(state, Reserve(some_id(2), ALICE, Amount(10)))
    assert refused(state, Charge(some_id(2), Height(5), BOB, Amount(1))).rule == "ESC-002"
    done(state, Charge(some_id(2), Height(6), BOB, Amount(1)))


@pytest.mark.rule("ESC-002")
def test_money_is_settled_in_rising_blocks_only() -> None:
    state = done(charged(40, height=5), Reserve(some_id(2), ALICE, Amount(10)))
    assert refused(state, Refund(some_id(2), Height(4))).rule == "ESC-002"


@pytest.mark.rule("ESC-001")
def test_a_settled_reservation_is_not_settled_again() -> None:
    state = charged(40, height=5)
    assert "CHARGED" in refused(state, Charge(RESERVATION, Height(5), BOB, Amount(41))).message
    assert "CHARGED" in refused(state, Refund(RESERVATION, Height(5))).message


@pytest.mark.rule("ESC-001", "ENG-005")
def test_the_same_command_again_has_no_effect_and_names_the_first_event() -> None:
    state = charged(40, height=5)
    for command, event in (
        (Mint(some_id(99), ALICE, Amount(100)), 1),
        (Reserve(RESERVATION, ALICE, Amount(60)), 2),
        (Charge(RESERVATION, Height(5), BOB, Amount(40)), 3),
    ):
        assert state_machine.decide(state, command, 0) == Decided((), repeat_of=event)  # type: ignore[arg-type]


@pytest.mark.rule("ENG-005")
@pytest.mark.parametrize(
    "command",
    [
        Reserve(RESERVATION, ALICE, Amount(59)),
        Reserve(RESERVATION, BOB, Amount(60)),
        Reserve(RESERVATION, ALICE, Amount(60), b"other"),
    ],
)
def test_a_used_id_for_something_else_is_refused(command: Reserve) -> None:
    assert refused(reserved(60), command).name == "IdReused"


@pytest.mark.rule("ESC-001")
def test_only_a_development_network_mints() -> None:
    production = State(Policy(network=Network.PRODUCTION))
    assert "development" in refused(production, Mint(RESERVATION, ALICE, Amount(1))).message


@pytest.mark.rule("ESC-001")
def test_no_more_money_can_exist_than_a_column_holds() -> None:
    state = rich(AMOUNT_MAX - 1)
    assert refused(state, Mint(RESERVATION, BOB, Amount(2))).rule == "ESC-001"
    assert balance(done(state, Mint(RESERVATION, BOB, Amount(1))), MINT).available == -AMOUNT_MAX


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize("owner", ["", "mint", "Alice", "-x", "a b", "ä", "x" * 129])
def test_a_bad_account_name_is_refused(owner: str) -> None:
    assert refused(rich(), Reserve(RESERVATION, AccountId(owner), Amount(1))).rule == "ESC-001"
    assert refused(rich(), Mint(RESERVATION, AccountId(owner), Amount(1))).rule == "ESC-001"


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize("amount", [-1, 0, AMOUNT_MAX + 1])
def test_a_bad_amount_is_refused(amount: int) -> None:
    assert "amount" in refused(rich(), Reserve(RESERVATION, ALICE, Amount(amount))).message


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize("size", [0, 31, 33])
def test_an_id_is_thirty_two_bytes(size: int) -> None:
    assert "32" in refused(rich(), Mint(bytes(size), ALICE, Amount(1))).message


@pytest.mark.rule("ESC-001")
def test_an_unknown_reservation_is_not_found() -> None:
    assert refused(rich(), Refund(RESERVATION, Height(1))).name == "NotFound"


@pytest.mark.rule("ESC-001")
def test_an_event_that_would_make_an_account_negative_is_corrupt() -> None:
    state = charged(40, height=5)
    state.ledger.accounts[BOB].pending -= 1
    with pytest.raises(Corrupt, match=r"ESC-001: bob\.pending would be -1"):
        state_machine.apply(state, Finalized(Height(5)))


@pytest.mark.rule("ESC-001")
def test_the_transitions_of_a_reservation_have_no_unreachable_state() -> None:
    assert unreachable_states(RESERVATION_TRANSITIONS, ReservationStatus.HELD) == frozenset()
    assert set(RESERVATION_TRANSITIONS) == set(ReservationStatus)
