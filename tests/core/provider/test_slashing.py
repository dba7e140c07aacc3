"""Slashing: an offence costs a part of the stake, never more than there is, and a reorg moves exactly that money."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.core_driver import CoreDriver, public
from tests.core.policy.test_policy import with_settings
from tests.core.provider.test_provider_health import happen
from tests.counts import counts

from holdfast.core import state_machine
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount, Height
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.chain.model import TxKind
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.provider.messages import (
    ChangeStatus,
    MaintainProviders,
    ProviderSlashed,
    ProviderStatusChanged,
    Stake,
    Unstake,
)
from holdfast.core.provider.model import (
    SLASHED,
    Provider,
    ProviderStatus,
    ProviderTransition,
    provider_id,
    stake_reservation_id,
)
from holdfast.core.provider.sla import OFFENCES, Severity, on_offence
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

ID = provider_id(public(1))
OWNER = AccountId("provider-1")
DAY_MS = 24 * 3_600_000


def active(stake: int = 10_000, **knobs: int) -> CoreDriver:
    core = CoreDriver(State(with_settings(CoreDriver().state.policy, **knobs)))
    core.provider(1)
    if stake < 10_000:
        core.do(Unstake(ID, Amount(10_000 - stake), core.new_id(), "ops"))
        core.seal(3)
        while core.ask(MaintainProviders()):
            pass
    return core


def one(core: CoreDriver) -> Provider:
    return core.state.providers[ID]


def offend(core: CoreDriver, reason: str) -> ProviderSlashed:
    events = on_offence(core.state, one(core), reason, core.now_ms)
    happen(core, *events)
    assert isinstance(events[0], ProviderSlashed)
    return events[0]


def money(core: CoreDriver) -> tuple[int, int, int, int]:
    """At stake, held by the owner, pending and available of what was slashed; all laws hold."""
    assert broken_invariants(core.state.ledger) == []
    accounts, hold = core.state.ledger.accounts, core.state.ledger.reservations.get(stake_reservation_id(ID))
    assert (hold.amount if hold is not None else 0) == one(core).at_stake
    lost = accounts.get(SLASHED)
    return one(core).at_stake, accounts[OWNER].held, lost.pending if lost else 0, lost.available if lost else 0


# ------------------------------------------------------------------------------------------------ the table


@pytest.mark.rule("PRV-004")
@pytest.mark.parametrize(
    ("reason", "severity", "penalty", "blocks"),
    [("PROOF_INVALID", "minor", 50, 300), ("EQUIVOCATION", "severe", 2_500, 43_200)],
)
def test_each_offence_costs_what_its_severity_says_and_jails_for_its_blocks(
    reason: str, severity: str, penalty: int, blocks: int
) -> None:
    core = active()
    slashed = offend(core, reason)
    assert (slashed.severity, slashed.penalty, slashed.height) == (severity, penalty, core.state.open_height)
    provider = one(core)
    assert (provider.stake, provider.slashed) == (10_000 - penalty, penalty)
    assert (provider.status, provider.jailed_until) == (ProviderStatus.JAILED, core.state.open_height + blocks)
    assert (provider.status_changed_by, reason in provider.reason) == ("holdfast", True)


@pytest.mark.rule("PRV-004", "RTY-003")
@pytest.mark.parametrize(("later_ms", "severity"), [(DAY_MS - 1, "major"), (DAY_MS, "minor")])
def test_an_invalid_proof_again_within_the_window_is_graver(later_ms: int, severity: str) -> None:
    core = active()
    offend(core, "PROOF_INVALID")
    core.now_ms += later_ms
    assert offend(core, "PROOF_INVALID").severity == severity


@pytest.mark.rule("PRV-004")
def test_every_offence_has_a_severity_and_every_severity_its_settings() -> None:
    policy = CoreDriver().state.policy.provider
    for severity in Severity:
        assert getattr(policy, f"slash_{severity}_ppm") > 0
        assert getattr(policy, f"jail_{severity}_blocks") > 0
    assert set(OFFENCES) == {"PROOF_INVALID", "EQUIVOCATION", "QUORUM_MINORITY"}


@pytest.mark.rule("PRV-004")
def test_who_is_jailed_already_is_jailed_no_shorter_and_keeps_its_status() -> None:
    core = active()
    offend(core, "EQUIVOCATION")
    until = one(core).jailed_until
    events = on_offence(core.state, one(core), "PROOF_INVALID", core.now_ms)
    assert [type(each) for each in events] == [ProviderSlashed]
    happen(core, *events)
    assert one(core).jailed_until == until


@pytest.mark.rule("PRV-004")
def test_who_is_jailed_for_good_is_not_released_by_another_offence() -> None:
    core = active()
    core.do(ChangeStatus(ID, ProviderTransition.JAIL, "ops"))
    offend(core, "PROOF_INVALID")
    assert (one(core).status, one(core).jailed_until) == (ProviderStatus.JAILED, 0)


@pytest.mark.rule("PRV-004")
def test_where_policy_jails_for_no_blocks_it_only_costs() -> None:
    core = active(provider__jail_minor_blocks=0)
    assert offend(core, "PROOF_INVALID").jailed_until == 0
    assert one(core).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-004")
def test_who_has_left_can_still_lose_what_is_locked_and_goes_nowhere() -> None:
    core = active()
    core.do(ChangeStatus(ID, ProviderTransition.RETIRE, "ops"))
    core.do(Unstake(ID, Amount(10_000), core.new_id(), "ops"))
    assert offend(core, "EQUIVOCATION").penalty == 2_500
    assert (one(core).status, one(core).unstaking, money(core)[0]) == (ProviderStatus.RETIRED, 7_500, 7_500)


@pytest.mark.rule("PRV-004")
@pytest.mark.parametrize(("ppm", "stake", "left"), [(1_000_000, 10_000, 0), (1_000_000, 1, 0), (999_999, 1, 1)])
def test_it_never_costs_more_than_there_is(ppm: int, stake: int, left: int) -> None:
    core = active(
        stake,
        provider__slash_severe_ppm=ppm,
        provider__unstake_lock_blocks=0,
        provider__unstake_cooldown_ms=0,
        chain__finality_depth=0,
    )
    offend(core, "EQUIVOCATION")
    offend(core, "EQUIVOCATION")
    assert money(core)[0] == left
    if not left:
        assert offend(core, "EQUIVOCATION").penalty == 0


# ------------------------------------------------------------------------------------------------ money and blocks


@pytest.mark.rule("ESC-001", "ESC-002", "PRV-004")
def test_what_was_lost_is_pending_until_its_block_is_final() -> None:
    core = active(chain__finality_depth=2)
    offend(core, "PROOF_INVALID")
    assert money(core) == (9_950, 9_950, 50, 0)
    core.seal(2)
    assert money(core) == (9_950, 9_950, 50, 0)
    core.seal()
    assert money(core) == (9_950, 9_950, 0, 50)


@pytest.mark.rule("CHN-001", "PRV-004")
def test_a_slash_is_a_transaction_that_concerns_its_provider() -> None:
    core = active()
    offend(core, "PROOF_INVALID")
    tx = core.state.chain.open.txs[-1]
    assert (tx.kind, tx.subject) == (TxKind.SLASH, ID)


@pytest.mark.rule("CHN-003", "CHN-004", "ESC-002")
def test_a_block_that_is_rolled_back_returns_the_money_and_the_next_one_takes_the_same() -> None:
    core = active()
    offend(core, "PROOF_INVALID")
    offend(core, "EQUIVOCATION")
    core.seal(3)
    before = money(core)
    undone = state_machine.decide(core.state, RollBackBlocks(Height(0)), core.now_ms)
    held = []
    for event in undone.events:  # type: ignore[union-attr]
        happen(core, event)
        assert broken_invariants(core.state.ledger) == [], "after every event, also in the middle"
        held.append(core.state.ledger.accounts[OWNER].held)
    assert max(held) == 10_000, "in between it was all the owner's again"
    assert money(core) == before
    assert [tx.kind for tx in core.state.chain.open.txs].count(TxKind.SLASH) == 2
    assert (one(core).status, one(core).stake) == (ProviderStatus.JAILED, before[0]), (
        "where it sits is no block's matter"
    )


@pytest.mark.rule("ESC-001", "CHN-003")
def test_stake_that_came_back_meanwhile_is_not_touched_by_the_reorg() -> None:
    core = active(provider__unstake_lock_blocks=1, provider__unstake_cooldown_ms=0, provider__jail_minor_blocks=0)
    offend(core, "PROOF_INVALID")
    core.seal()
    core.do(Unstake(ID, Amount(9_950), core.new_id(), "ops"))
    core.seal()
    core.do(MaintainProviders())
    assert money(core) == (0, 0, 50, 0)
    core.do(RollBackBlocks(Height(0)))
    assert money(core) == (0, 0, 50, 0)


ACTIONS = ("PROOF_INVALID", "EQUIVOCATION", "stake", "unstake", "tend", "seal", "back")
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 9)), max_size=40)


def _run_step(core: CoreDriver, what: str, number: int) -> None:
    if what in OFFENCES:
        offend(core, what)
    elif what == "stake":
        core.funded(OWNER, number)
        core.ask(Stake(ID, Amount(number), core.new_id()))
    elif what == "unstake":
        core.ask(Unstake(ID, Amount(number * 1_000), core.new_id(), "ops"))
    elif what == "tend":
        core.now_ms += number
        core.ask(MaintainProviders())
    elif what == "seal":
        core.seal(number % 3)
    else:
        core.ask(RollBackBlocks(Height(max(0, core.state.chain.head.height - number % 3))))


@pytest.mark.rule("PRV-004", "ESC-001", "ESC-002", "CHN-003")
@settings(max_examples=counts(60, 5_000), deadline=None)
@given(STEPS)
def test_whatever_is_staked_lost_unstaked_and_rolled_back_the_money_adds_up(steps: list[tuple[str, int]]) -> None:
    core = active(
        provider__unstake_lock_blocks=1, provider__unstake_cooldown_ms=3, provider__jail_minor_blocks=1,
        provider__jail_major_blocks=2, provider__jail_severe_blocks=3, chain__finality_depth=4,
    )  # fmt: skip
    for what, number in steps:
        _run_step(core, what, number)
        stake, held, pending, lost = money(core)
        provider = one(core)
        assert min(provider.stake, provider.unstaking, pending, lost) >= 0
        assert held == stake
        assert (
            pending + lost
            == provider.slashed
            == sum(each.penalty for each in core.events if isinstance(each, ProviderSlashed))
        )
    again = State(core.state.policy)
    for event in core.events:
        state_machine.apply(again, event)
    assert digest(again) == digest(core.state)
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    later_ms = core.now_ms + 10_000  # the index made anew finds the same to do
    assert state_machine.decide(copy, MaintainProviders(), later_ms) == state_machine.decide(
        core.state, MaintainProviders(), later_ms
    )


def test_a_jailing_names_its_end() -> None:
    core = active()
    offend(core, "PROOF_INVALID")
    step = core.events[-1]
    assert isinstance(step, ProviderStatusChanged)
    assert step.until == core.state.open_height + 300
