"""Slashing: an offence costs a part of the stake, never more than there is, and a reorg moves exactly that money."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_policy import turned
from tests.core.test_provider_health import happen
from tests.core.ways import Way, public
from tests.counts import counts

from holdfast.core import law
from holdfast.core.chain.acts import RollBack
from holdfast.core.chain.blocks import TxKind
from holdfast.core.escrow.books import broken_laws
from holdfast.core.event import Tip
from holdfast.core.provider.acts import MoveProvider, ProviderMoved, ProviderSlashed, Stake, Tend, Unstake
from holdfast.core.provider.record import SLASHED, Provider, ProviderAct, ProviderStatus, provider_id, stake_id
from holdfast.core.provider.sla import OFFENCES, Severity, sentence
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import AccountId, Amount, Height

ID = provider_id(public(1))
OWNER = AccountId("provider-1")
DAY_MS = 24 * 3_600_000


def active(stake: int = 10_000, **knobs: int) -> Way:
    way = Way(State(turned(Way().state.policy, **knobs)))
    way.provider(1)
    if stake < 10_000:
        way.do(Unstake(ID, Amount(10_000 - stake), way.new_id(), "ops"))
        way.seal(3)
        while way.ask(Tend()):
            pass
    return way


def one(way: Way) -> Provider:
    return way.state.providers[ID]


def offend(way: Way, reason: str) -> ProviderSlashed:
    events = sentence(way.state, one(way), reason, way.now_ms)
    happen(way, *events)
    assert isinstance(events[0], ProviderSlashed)
    return events[0]


def money(way: Way) -> tuple[int, int, int, int]:
    """At stake, held by the owner, pending and available of what was slashed; all laws hold."""
    assert broken_laws(way.state.ledger) == []
    accounts, hold = way.state.ledger.accounts, way.state.ledger.holds.get(stake_id(ID))
    assert (hold.amount if hold is not None else 0) == one(way).at_stake
    lost = accounts.get(SLASHED)
    return one(way).at_stake, accounts[OWNER].held, lost.pending if lost else 0, lost.available if lost else 0


# ------------------------------------------------------------------------------------------------ the table


@pytest.mark.rule("PRV-004")
@pytest.mark.parametrize(
    ("reason", "severity", "penalty", "blocks"),
    [("PROOF_INVALID", "minor", 50, 300), ("EQUIVOCATION", "severe", 2_500, 43_200)],
)
def test_each_offence_costs_what_its_severity_says_and_jails_for_its_blocks(
    reason: str, severity: str, penalty: int, blocks: int
) -> None:
    way = active()
    slashed = offend(way, reason)
    assert (slashed.severity, slashed.penalty, slashed.height) == (severity, penalty, way.state.open_height)
    provider = one(way)
    assert (provider.stake, provider.slashed) == (10_000 - penalty, penalty)
    assert (provider.status, provider.jailed_until) == (ProviderStatus.JAILED, way.state.open_height + blocks)
    assert (provider.moved_by, reason in provider.reason) == ("holdfast", True)


@pytest.mark.rule("PRV-004", "RTY-003")
@pytest.mark.parametrize(("later_ms", "severity"), [(DAY_MS - 1, "major"), (DAY_MS, "minor")])
def test_an_invalid_proof_again_within_the_window_is_graver(later_ms: int, severity: str) -> None:
    way = active()
    offend(way, "PROOF_INVALID")
    way.now_ms += later_ms
    assert offend(way, "PROOF_INVALID").severity == severity


@pytest.mark.rule("PRV-004")
def test_every_offence_has_a_severity_and_every_severity_its_knobs() -> None:
    policy = Way().state.policy.provider
    for severity in Severity:
        assert getattr(policy, f"slash_{severity}_ppm") > 0
        assert getattr(policy, f"jail_{severity}_blocks") > 0
    assert set(OFFENCES) == {"PROOF_INVALID", "EQUIVOCATION", "QUORUM_MINORITY"}


@pytest.mark.rule("PRV-004")
def test_who_sits_already_sits_no_shorter_and_is_moved_nowhere() -> None:
    way = active()
    offend(way, "EQUIVOCATION")
    until = one(way).jailed_until
    events = sentence(way.state, one(way), "PROOF_INVALID", way.now_ms)
    assert [type(each) for each in events] == [ProviderSlashed]
    happen(way, *events)
    assert one(way).jailed_until == until


@pytest.mark.rule("PRV-004")
def test_who_sits_for_good_is_not_let_out_by_another_offence() -> None:
    way = active()
    way.do(MoveProvider(ID, ProviderAct.JAIL, "ops"))
    offend(way, "PROOF_INVALID")
    assert (one(way).status, one(way).jailed_until) == (ProviderStatus.JAILED, 0)


@pytest.mark.rule("PRV-004")
def test_where_policy_jails_for_no_blocks_it_only_costs() -> None:
    way = active(provider__jail_minor_blocks=0)
    assert offend(way, "PROOF_INVALID").jailed_until == 0
    assert one(way).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-004")
def test_who_has_left_can_still_lose_what_is_locked_and_goes_nowhere() -> None:
    way = active()
    way.do(MoveProvider(ID, ProviderAct.RETIRE, "ops"))
    way.do(Unstake(ID, Amount(10_000), way.new_id(), "ops"))
    assert offend(way, "EQUIVOCATION").penalty == 2_500
    assert (one(way).status, one(way).unstaking, money(way)[0]) == (ProviderStatus.RETIRED, 7_500, 7_500)


@pytest.mark.rule("PRV-004")
@pytest.mark.parametrize(("ppm", "stake", "left"), [(1_000_000, 10_000, 0), (1_000_000, 1, 0), (999_999, 1, 1)])
def test_it_never_costs_more_than_there_is(ppm: int, stake: int, left: int) -> None:
    way = active(
        stake,
        provider__slash_severe_ppm=ppm,
        provider__unstake_lock_blocks=0,
        provider__unstake_cooldown_ms=0,
        chain__finality_depth=0,
    )
    offend(way, "EQUIVOCATION")
    offend(way, "EQUIVOCATION")
    assert money(way)[0] == left
    if not left:
        assert offend(way, "EQUIVOCATION").penalty == 0


# ------------------------------------------------------------------------------------------------ money and blocks


@pytest.mark.rule("ESC-001", "ESC-002", "PRV-004")
def test_what_was_lost_is_pending_until_its_block_is_final() -> None:
    way = active(chain__finality_depth=2)
    offend(way, "PROOF_INVALID")
    assert money(way) == (9_950, 9_950, 50, 0)
    way.seal(2)
    assert money(way) == (9_950, 9_950, 50, 0)
    way.seal()
    assert money(way) == (9_950, 9_950, 0, 50)


@pytest.mark.rule("CHN-001", "PRV-004")
def test_a_slash_is_a_transaction_that_concerns_its_provider() -> None:
    way = active()
    offend(way, "PROOF_INVALID")
    tx = way.state.chain.open.txs[-1]
    assert (tx.kind, tx.subject) == (TxKind.SLASH, ID)


@pytest.mark.rule("CHN-003", "CHN-004", "ESC-002")
def test_a_block_that_is_taken_back_gives_the_money_back_and_the_next_one_takes_the_same() -> None:
    way = active()
    offend(way, "PROOF_INVALID")
    offend(way, "EQUIVOCATION")
    way.seal(3)
    before = money(way)
    undone = law.decide(way.state, RollBack(Height(0)), way.now_ms)
    held = []
    for event in undone.events:  # type: ignore[union-attr]
        happen(way, event)
        assert broken_laws(way.state.ledger) == [], "after every event, also in the middle"
        held.append(way.state.ledger.accounts[OWNER].held)
    assert max(held) == 10_000, "in between it was all the owner's again"
    assert money(way) == before
    assert [tx.kind for tx in way.state.chain.open.txs].count(TxKind.SLASH) == 2
    assert (one(way).status, one(way).stake) == (ProviderStatus.JAILED, before[0]), "where it sits is no block's matter"


@pytest.mark.rule("ESC-001", "CHN-003")
def test_stake_that_came_back_meanwhile_is_not_touched_by_the_reorg() -> None:
    way = active(provider__unstake_lock_blocks=1, provider__unstake_cooldown_ms=0, provider__jail_minor_blocks=0)
    offend(way, "PROOF_INVALID")
    way.seal()
    way.do(Unstake(ID, Amount(9_950), way.new_id(), "ops"))
    way.seal()
    way.do(Tend())
    assert money(way) == (0, 0, 50, 0)
    way.do(RollBack(Height(0)))
    assert money(way) == (0, 0, 50, 0)


ACTS = ("PROOF_INVALID", "EQUIVOCATION", "stake", "unstake", "tend", "seal", "back")
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(1, 9)), max_size=40)


def _go(way: Way, what: str, number: int) -> None:
    if what in OFFENCES:
        offend(way, what)
    elif what == "stake":
        way.funded(OWNER, number)
        way.ask(Stake(ID, Amount(number), way.new_id()))
    elif what == "unstake":
        way.ask(Unstake(ID, Amount(number * 1_000), way.new_id(), "ops"))
    elif what == "tend":
        way.now_ms += number
        way.ask(Tend())
    elif what == "seal":
        way.seal(number % 3)
    else:
        way.ask(RollBack(Height(max(0, way.state.chain.head.height - number % 3))))


@pytest.mark.rule("PRV-004", "ESC-001", "ESC-002", "CHN-003")
@settings(max_examples=counts(60, 5_000), deadline=None)
@given(STEPS)
def test_whatever_is_staked_lost_taken_back_and_undone_the_money_adds_up(steps: list[tuple[str, int]]) -> None:
    way = active(
        provider__unstake_lock_blocks=1, provider__unstake_cooldown_ms=3, provider__jail_minor_blocks=1,
        provider__jail_major_blocks=2, provider__jail_severe_blocks=3, chain__finality_depth=4,
    )  # fmt: skip
    for what, number in steps:
        _go(way, what, number)
        stake, held, pending, lost = money(way)
        provider = one(way)
        assert min(provider.stake, provider.unstaking, pending, lost) >= 0
        assert held == stake
        assert (
            pending + lost
            == provider.slashed
            == sum(each.penalty for each in way.events if isinstance(each, ProviderSlashed))
        )
    again = State(way.state.policy)
    for event in way.events:
        law.apply(again, event)
    assert digest(again) == digest(way.state)
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    later_ms = way.now_ms + 10_000  # the index made anew finds the same to do
    assert law.decide(copy, Tend(), later_ms) == law.decide(way.state, Tend(), later_ms)


def test_a_jail_move_names_its_end() -> None:
    way = active()
    offend(way, "PROOF_INVALID")
    step = way.events[-1]
    assert isinstance(step, ProviderMoved)
    assert step.until == way.state.open_height + 300
