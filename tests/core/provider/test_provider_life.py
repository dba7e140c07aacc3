"""A provider's life: every arrow of its table leads where it says, no other is there, and all leave their trace."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.commands import DEVELOPMENT, some_id
from tests.core.core_driver import YEAR_MS, CoreDriver, public
from tests.core.policy.test_policy import with_settings

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.privileged import PrivilegedActRecorded, PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, ProviderId
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.provider.apply import rebuild_provider_timers
from holdfast.core.provider.messages import (
    ChangeStatus,
    Drain,
    Heartbeat,
    HeartbeatMissed,
    ListingChanged,
    MaintainProviders,
    ProviderDrained,
    ProviderStatusChanged,
    Register,
    RotateSigner,
    SetListing,
    SignerRotated,
    Stake,
    StakeReleased,
    Unstake,
)
from holdfast.core.provider.model import (
    PROVIDER_TRANSITIONS,
    Provider,
    ProviderStatus,
    ProviderTransition,
    provider_id,
    provider_id_of_key,
    stake_reservation_id,
)
from holdfast.core.state import State

POLICY = with_settings(DEVELOPMENT, provider__unstake_lock_blocks=3, provider__unstake_cooldown_ms=10_000)
ID = provider_id(public(1))
OPERATOR_TRANSITIONS = (
    ProviderTransition.JAIL,
    ProviderTransition.UNJAIL,
    ProviderTransition.SUSPEND,
    ProviderTransition.RECOVER,
    ProviderTransition.RETIRE,
)


ARROWS = {
    ("REGISTERED", "jail"): "JAILED",
    ("REGISTERED", "retire"): "RETIRED",
    ("ACTIVE", "jail"): "JAILED",
    ("ACTIVE", "suspend"): "SUSPENDED",
    ("ACTIVE", "retire"): "RETIRED",
    ("SUSPENDED", "recover"): "ACTIVE",
    ("SUSPENDED", "jail"): "JAILED",
    ("SUSPENDED", "retire"): "RETIRED",
    ("JAILED", "unjail"): "REGISTERED",
    ("JAILED", "retire"): "RETIRED",
}
"""Written down a second time: every arrow that can be asked for; all others are refused."""


def active() -> CoreDriver:
    core = CoreDriver(State(POLICY))
    core.provider(1)
    return core


def one(core: CoreDriver, id_: ProviderId = ID) -> Provider:
    return core.state.providers[id_]


def expect_refusal(core: CoreDriver, command: Any) -> Refused:
    before = list(core.events)
    outcome = core.ask(command)
    assert isinstance(outcome, Refused), outcome
    assert core.events == before
    return outcome


def change_status(core: CoreDriver, transition: ProviderTransition, **told: Any) -> ProviderStatusChanged:
    event = core.do(ChangeStatus(ID, transition, "ops", **told))[0]
    assert isinstance(event, ProviderStatusChanged)
    return event


def provider_in_status(status: ProviderStatus) -> CoreDriver:
    """A provider in this status, on the way an operator or time brings it there."""
    core = active()
    if status is ProviderStatus.REGISTERED:
        change_status(core, ProviderTransition.JAIL)
        change_status(core, ProviderTransition.UNJAIL)
    elif status is not ProviderStatus.ACTIVE:
        acts = {
            ProviderStatus.JAILED: ProviderTransition.JAIL,
            ProviderStatus.SUSPENDED: ProviderTransition.SUSPEND,
            ProviderStatus.RETIRED: ProviderTransition.RETIRE,
        }
        change_status(core, acts[status])
    assert one(core).status is status
    return core


# ------------------------------------------------------------------------------------------------ the table


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize("status", ProviderStatus)
@pytest.mark.parametrize("act", OPERATOR_TRANSITIONS)
def test_every_arrow_of_the_table_leads_where_it_says_and_there_is_no_other(
    status: ProviderStatus, act: ProviderTransition
) -> None:
    core = provider_in_status(status)
    after = ARROWS.get((status.value, act.value))
    if after is None:
        refusal = expect_refusal(core, ChangeStatus(ID, act, "ops"))
        assert refusal.rule == "PRV-001"
        assert str(status) in refusal.message
        return
    event = change_status(core, act, reason="as the test says")
    told = (event.before, event.after, event.reason, event.actor, event.height)
    assert told == (status, after, "as the test says", "ops", core.state.open_height)
    assert one(core).status == after


@pytest.mark.rule("PRV-001")
def test_the_table_has_these_arrows_and_those_that_follow_by_themselves() -> None:
    table = {
        (str(state), str(act)): str(after)
        for state, acts in PROVIDER_TRANSITIONS.items()
        for act, after in acts.items()
    }
    assert table == ARROWS | {("REGISTERED", "activate"): "ACTIVE", ("ACTIVE", "lapse"): "REGISTERED"}


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize("act", [ProviderTransition.ACTIVATE, ProviderTransition.LAPSE])
def test_what_follows_from_stake_and_heartbeats_cannot_be_requested(act: ProviderTransition) -> None:
    assert expect_refusal(active(), ChangeStatus(ID, act, "ops")).name == "InvalidParams"


@pytest.mark.rule("PRV-001", "SEC-001")
def test_a_privileged_status_change_names_whoever_made_it() -> None:
    core = active()
    core.do(PrivilegedCommand("key-7", "provider.jail", ChangeStatus(ID, ProviderTransition.JAIL, "key-7", "cheats")))
    done, event = core.events[-2:]
    assert (isinstance(done, PrivilegedActRecorded), getattr(done, "actor", "")) == (True, "key-7")
    assert isinstance(event, ProviderStatusChanged)
    assert (one(core).reason, one(core).status_changed_by) == ("cheats", "key-7")


def test_a_reason_that_cannot_be_shown_is_refused() -> None:
    for reason in ("a\nb", "x" * 201):
        assert (
            expect_refusal(active(), ChangeStatus(ID, ProviderTransition.JAIL, "ops", reason)).name == "InvalidParams"
        )


@pytest.mark.rule("PRV-001")
def test_retired_is_the_end() -> None:
    core = provider_in_status(ProviderStatus.RETIRED)
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "eu", 3, 4, core.now_ms + YEAR_MS)
    commands: list[Any] = [
        Heartbeat(ID, 4),
        Stake(ID, Amount(1), some_id(77)),
        Drain(ID, True, "ops"),
        Register(public(1), "another name", *told),
    ]
    for command in commands:
        assert "final" in expect_refusal(core, command).message


# ------------------------------------------------------------------------------------------------ jail


@pytest.mark.rule("PRV-001")
def test_jail_for_some_blocks_ends_by_itself_at_its_height_and_a_heartbeat_makes_it_active_again() -> None:
    core = active()
    event = change_status(core, ProviderTransition.JAIL, blocks=2)
    until = core.state.open_height + 2
    assert (event.until, one(core).jailed_until) == (until, until)
    core.seal()
    assert core.ask(MaintainProviders()) == (), "one block too early"
    core.seal()
    assert core.state.open_height == until
    freed = core.do(MaintainProviders())[0]
    assert isinstance(freed, ProviderStatusChanged)
    assert (freed.after, freed.actor) == (ProviderStatus.REGISTERED, "holdfast")
    assert one(core).jailed_until == 0
    core.do(Heartbeat(ID, 4))
    assert one(core).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-001")
def test_jail_without_an_end_lasts_until_somebody_unjails() -> None:
    core = active()
    change_status(core, ProviderTransition.JAIL)
    core.seal(20)
    assert core.ask(MaintainProviders()) == ()
    change_status(core, ProviderTransition.UNJAIL)
    assert one(core).status is ProviderStatus.REGISTERED


# ------------------------------------------------------------------------------------------------ drain


def test_draining_is_an_event_with_before_and_after_and_the_same_again_is_none() -> None:
    core = active()
    event = core.do(Drain(ID, True, "ops", "new disks"))[0]
    assert event == ProviderDrained(ID, False, True, "new disks", "ops", core.state.open_height)
    assert core.ask(Drain(ID, True, "ops")) == ()
    core.do(Drain(ID, False, "ops"))
    assert one(core).is_draining == 0


# ------------------------------------------------------------------------------------------------ taking stake back


def unstake(core: CoreDriver, amount: int, request: int = 9) -> Any:
    return core.ask(Unstake(ID, Amount(amount), some_id(request), "ops"))


def money_of(core: CoreDriver) -> tuple[int, int, int]:
    account = core.state.ledger.accounts[AccountId("provider-1")]
    assert broken_invariants(core.state.ledger) == []
    hold = core.state.ledger.reservations.get(stake_reservation_id(ID))
    assert (hold.amount if hold else 0) == one(core).at_stake
    return account.available, account.held, one(core).stake


@pytest.mark.rule("PRV-001", "ESC-001")
def test_stake_is_given_back_when_both_its_blocks_and_its_time_are_over() -> None:
    core = active()
    core.do(Stake(ID, Amount(5_000), core.new_id()))
    unstake(core, 5_000)
    assert (money_of(core), one(core).unstaking) == ((5_000, 15_000, 10_000), 5_000)
    core.now_ms += 90_000
    assert [type(each) for each in core.do(MaintainProviders())] == [HeartbeatMissed], "the blocks are not there"
    core.do(Heartbeat(ID, 4))
    core.seal(2)
    assert core.ask(MaintainProviders()) == (), "one block is missing"
    core.seal()
    assert core.do(MaintainProviders()) == (StakeReleased(ID, Amount(5_000)),)
    assert (money_of(core), one(core).unstaking, one(core).status) == (
        (10_000, 10_000, 10_000),
        0,
        ProviderStatus.ACTIVE,
    )


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("wait_ms", "is_free"), [(9_999, False), (10_000, True)])
def test_stake_is_not_given_back_a_millisecond_too_soon(wait_ms: int, is_free: bool) -> None:
    core = active()
    unstake(core, 1)
    core.seal(3)
    core.now_ms += wait_ms
    assert (core.ask(MaintainProviders()) != ()) is is_free


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(("amount", "status"), [(0, None), (10_000, "REGISTERED"), (1, "REGISTERED"), (10_001, None)])
def test_below_the_minimum_it_is_only_registered(amount: int, status: str | None) -> None:
    core = active()
    outcome = unstake(core, amount)
    assert isinstance(outcome, Refused) is (status is None)
    assert one(core).status == (status or "ACTIVE")


@pytest.mark.rule("PRV-001")
def test_all_of_it_can_be_unstaked_and_staked_again() -> None:
    core = active()
    unstake(core, 10_000)
    core.seal(3)
    core.now_ms += 10_000
    core.do(MaintainProviders())
    assert money_of(core) == (20_000, 0, 0)
    core.do(Heartbeat(ID, 4))
    core.do(Stake(ID, Amount(10_000), core.new_id()))
    assert (money_of(core), one(core).status) == ((10_000, 10_000, 10_000), ProviderStatus.ACTIVE)


@pytest.mark.rule("PRV-001")
def test_one_unstake_request_is_done_once_and_only_one_at_a_time() -> None:
    core = active()
    unstake(core, 4_000)
    assert unstake(core, 4_000) == ()
    assert "unstaking already" in expect_refusal(core, Unstake(ID, Amount(1), some_id(10), "ops")).message
    assert one(core).at_stake == 10_000


@pytest.mark.rule("PRV-001")
@pytest.mark.parametrize(
    ("status", "amount", "may"),
    [
        (ProviderStatus.JAILED, 1, False),
        (ProviderStatus.SUSPENDED, 1, False),
        (ProviderStatus.RETIRED, 10_000, True),
        (ProviderStatus.REGISTERED, 10_000, True),
    ],
)
def test_who_is_jailed_unstakes_nothing_and_who_has_left_unstakes_all(
    status: ProviderStatus, amount: int, may: bool
) -> None:
    core = provider_in_status(status)
    assert isinstance(unstake(core, amount), Refused) is not may
    assert one(core).status is status


@pytest.mark.rule("PRV-001")
def test_with_active_leases_the_minimum_stays() -> None:
    core = active()
    core.do(Stake(ID, Amount(5), core.new_id()))
    one(core).leases = 1
    assert "drain first" in expect_refusal(core, Unstake(ID, Amount(6), some_id(9), "ops")).hint
    assert not isinstance(unstake(core, 5), Refused)


# ------------------------------------------------------------------------------------------------ another key


@pytest.mark.rule("PRV-003")
def test_with_another_key_it_is_the_same_provider_and_the_old_key_is_nobody_s() -> None:
    core = active()
    event = core.do(RotateSigner(ID, public(7), "itself"))[0]
    assert event == SignerRotated(ID, public(1), public(7), "itself", core.state.open_height)
    assert (one(core).signing_key, one(core).public) == (public(7), public(1))
    assert provider_id_of_key(core.state, public(7)) == ID
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "eu", 9, 4, core.now_ms + YEAR_MS)
    assert expect_refusal(core, Register(public(1), "p1", *told)).rule == "PRV-003"
    core.do(Register(public(7), "p1", *told))
    assert (len(core.state.providers), one(core).price) == (1, 9)
    core.do(RotateSigner(ID, public(8), "itself"))
    assert provider_id_of_key(core.state, public(7)) != ID
    core.do(RotateSigner(ID, public(1), "itself"))
    assert (one(core).current_key, core.state.provider_timers.rotated_keys) == (b"", {})


@pytest.mark.rule("PRV-003")
def test_a_key_is_changed_to_one_that_is_nobody_s_and_while_no_lease_is_active() -> None:
    core = active()
    core.provider(2)
    other = provider_id(public(2))
    assert "another provider" in expect_refusal(core, RotateSigner(ID, public(2), "itself")).message
    core.do(RotateSigner(other, public(5), "itself"))
    for taken in (public(2), public(5)):
        assert "another provider" in expect_refusal(core, RotateSigner(ID, taken, "itself")).message
    assert expect_refusal(core, RotateSigner(ID, b"short", "itself")).name == "InvalidParams"
    one(core).leases = 1
    assert expect_refusal(core, RotateSigner(ID, public(9), "itself")).hint == "drain first"


# ------------------------------------------------------------------------------------------------ lists


def listed(core: CoreDriver, subject: str, verdict: str) -> None:
    core.do(SetListing(subject, verdict, "ops"))


@pytest.mark.rule("MAT-002")
def test_who_is_denied_is_barred_and_once_somebody_is_allowed_everybody_else_is() -> None:
    core = active()
    core.provider(2)
    other = provider_id(public(2))
    listed(core, f"provider:{ID.hex()}", "deny")
    assert (one(core).denied_by_list, one(core, other).denied_by_list) == ("denied", "")
    listed(core, f"provider:{ID.hex()}", "allow")
    assert (one(core).denied_by_list, one(core, other).denied_by_list) == ("", "not among those allowed")
    listed(core, f"provider:{ID.hex()}", "")
    assert (one(core).denied_by_list, one(core, other).denied_by_list, core.state.listings) == ("", "", {})


@pytest.mark.rule("MAT-002")
def test_a_region_is_denied_or_allowed_and_a_provider_that_moves_is_looked_at_again() -> None:
    core = active()
    listed(core, "region:eu", "deny")
    assert one(core).denied_by_list == "its region is denied"
    told = (AccountId("provider-1"), canonical({"AI": {"models": ["echo"]}}), "us", 3, 4, core.now_ms + YEAR_MS)
    core.do(Register(public(1), "p1", *told))
    assert one(core).denied_by_list == ""
    listed(core, "region:asia", "allow")
    assert one(core).denied_by_list == "its region is not among those allowed"


def test_a_list_says_who_changed_it_and_takes_only_what_it_can_mean() -> None:
    core = active()
    event = core.do(SetListing("region:eu", "deny", "ops", "rules"))[0]
    assert event == ListingChanged("region:eu", "", "deny", "rules", "ops", core.state.open_height)
    assert core.ask(SetListing("region:eu", "deny", "ops")) == ()
    for subject, verdict in (("planet:mars", "deny"), ("provider:12", "deny"), ("region:eu", "perhaps")):
        assert expect_refusal(core, SetListing(subject, verdict, "ops")).name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ the index


def test_the_index_of_who_is_due_is_the_one_that_the_records_give() -> None:
    core = active()
    core.provider(2)
    change_status(core, ProviderTransition.JAIL, blocks=5)
    core.do(RotateSigner(provider_id(public(2)), public(6), "itself"))
    core.do(Unstake(provider_id(public(2)), Amount(10), core.new_id(), "ops"))
    ward = core.state.provider_timers
    assert (ward.due_ms_by_id, ward.due_heights, ward.rotated_keys) == _parts(rebuild_provider_timers(core.state))
    assert ward.due_heights == {ID: core.state.open_height + 5, provider_id(public(2)): core.state.open_height + 3}


def _parts(timers: Any) -> tuple[Any, Any, Any]:
    return timers.due_ms_by_id, timers.due_heights, timers.rotated_keys
