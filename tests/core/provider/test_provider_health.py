"""Health: failures and missed heartbeats take of it, work and presence give it back, and too little of it suspends."""

from __future__ import annotations

import pytest
from tests.core.core_driver import BEGIN_MS, CoreDriver, public
from tests.core.lease.manual_lease import grant_lease
from tests.core.policy.test_policy import with_settings

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, OwnershipTaken
from holdfast.core.base.values import Term
from holdfast.core.lease.messages import LeaseClosed
from holdfast.core.lease.model import Lease, LeaseStatus
from holdfast.core.provider.decide import capabilities_digest
from holdfast.core.provider.health import DECAYS, on_failure, on_success
from holdfast.core.provider.messages import (
    ChangeStatus,
    HealthChanged,
    Heartbeat,
    HeartbeatMissed,
    MaintainProviders,
    OutageCredited,
    ProviderStatusChanged,
)
from holdfast.core.provider.model import HEALTH_MAX_PPM, Provider, ProviderStatus, ProviderTransition, provider_id
from holdfast.core.state import State
from holdfast.core.workflows import revoke

ID = provider_id(public(1))
MINUTE_MS = 60_000
FIRST_MISS_MS = 90_000
"""An interval and the grace after it."""


def active(**settings: int) -> CoreDriver:
    core = CoreDriver(State(with_settings(CoreDriver().state.policy, **settings)))
    core.funded()
    core.provider(1, slots=100)
    return core


def one(core: CoreDriver) -> Provider:
    return core.state.providers[ID]


def happen(core: CoreDriver, *events: Event) -> None:
    for event in events:
        state_machine.apply(core.state, event)
        core.events.append(event)


def fail(core: CoreDriver, reason: str, lease: Lease | None = None) -> None:
    """A failure as the station of leases tells it: the lease ends and counts, then its provider is blamed."""
    lease = lease or grant_lease(core, ID)
    status = LeaseStatus.EXPIRED if reason == "LEASE_EXPIRED" else LeaseStatus.CANCELLED
    closed = LeaseClosed(lease.id, status, reason, core.now_ms, True, core.now_ms)
    happen(core, closed, on_failure(core.state, one(core), reason, core.now_ms))


# ------------------------------------------------------------------------------------------------ failures


@pytest.mark.rule("RTY-003")
@pytest.mark.parametrize(
    ("reason", "left_ppm"),
    [("ACK_TIMEOUT", 980_000), ("LEASE_EXPIRED", 900_000), ("PROVIDER_FAIL", 980_000), ("PROOF_INVALID", 1_000_000)],
)
def test_each_failure_takes_its_part_of_health(reason: str, left_ppm: int) -> None:
    core = active()
    fail(core, reason)
    assert one(core).health_ppm == left_ppm
    assert all(knob.endswith("_decay_ppm") for knob in DECAYS.values())


@pytest.mark.rule("RTY-003")
def test_health_is_never_below_nothing_nor_above_whole() -> None:
    core = active(provider__lease_expired_decay_ppm=700_000, provider__success_recovery_ppm=900_000)
    for _ in range(2):
        fail(core, "LEASE_EXPIRED")
    assert one(core).health_ppm == 0
    for _ in range(2):
        happen(core, *on_success(core.state, one(core), core.now_ms))
    assert one(core).health_ppm == HEALTH_MAX_PPM


@pytest.mark.rule("RTY-003")
def test_failures_that_end_in_one_decision_all_count() -> None:
    core = active()
    leases = [grant_lease(core, ID, nonce=number) for number in (11, 12, 13)]
    closed = [LeaseClosed(each.id, LeaseStatus.EXPIRED, "LEASE_EXPIRED", core.now_ms, True, 0) for each in leases]
    decided = [(each, on_failure(core.state, one(core), "LEASE_EXPIRED", core.now_ms)) for each in closed]
    for events in decided:
        happen(core, *events)
    assert one(core).health_ppm == 700_000
    assert one(core).cooling_until_ms == core.now_ms + MINUTE_MS


@pytest.mark.rule("RTY-003")
def test_the_third_failure_in_a_row_cools_down_and_each_time_twice_as_long_up_to_the_cap() -> None:
    core = active(provider__ack_timeout_decay_ppm=0, provider__cooldown_cap_ms=3 * MINUTE_MS)
    waits = []
    for _ in range(4):
        for number in (1, 2, 3):
            core.now_ms = max(core.now_ms, one(core).cooling_until_ms)
            before_ms = one(core).cooling_until_ms
            fail(core, "ACK_TIMEOUT")
            assert (one(core).cooling_until_ms != before_ms) is (number == 3)
        waits.append(one(core).cooling_until_ms - core.now_ms)
    assert waits == [MINUTE_MS, 2 * MINUTE_MS, 3 * MINUTE_MS, 3 * MINUTE_MS]


@pytest.mark.rule("RTY-003")
def test_while_it_cools_down_what_it_was_given_before_starts_no_other_cooldown() -> None:
    core = active(provider__ack_timeout_decay_ppm=0)
    for _ in range(9):
        fail(core, "ACK_TIMEOUT")
    assert (one(core).cooling_until_ms, one(core).cooldowns) == (core.now_ms + MINUTE_MS, 1)


@pytest.mark.rule("RTY-003")
def test_work_done_well_heals_and_makes_the_next_cooldown_a_first_one() -> None:
    core = active()
    for _ in range(3):
        fail(core, "LEASE_EXPIRED")
    assert (one(core).health_ppm, one(core).cooldowns) == (700_000, 1)
    happen(core, *on_success(core.state, one(core), core.now_ms))
    assert (one(core).health_ppm, one(core).cooldowns) == (720_000, 0)


@pytest.mark.rule("RTY-003")
def test_who_is_well_costs_no_event_for_doing_well() -> None:
    core = active()
    assert on_success(core.state, one(core), core.now_ms) == ()


@pytest.mark.rule("RTY-003")
def test_what_the_system_cancelled_counts_against_nobody() -> None:
    core = active()
    lease = grant_lease(core, ID)
    happen(core, LeaseClosed(lease.id, LeaseStatus.CANCELLED, "PROVIDER_JAILED", core.now_ms, False, core.now_ms))
    provider = one(core)
    assert (provider.health_ppm, provider.failed, provider.failures_in_row) == (HEALTH_MAX_PPM, 0, 0)


# ------------------------------------------------------------------------------------------------ heartbeats


@pytest.mark.rule("PRV-002")
@pytest.mark.parametrize(("later_ms", "count"), [(FIRST_MISS_MS - 1, 0), (FIRST_MISS_MS, 1)])
def test_a_heartbeat_is_missed_when_its_interval_and_the_grace_are_over(later_ms: int, count: int) -> None:
    core = active()
    core.now_ms += later_ms
    assert len([each for each in core.do(MaintainProviders()) if isinstance(each, HeartbeatMissed)]) == count
    assert (one(core).health_ppm, one(core).missed_heartbeats) == (HEALTH_MAX_PPM - count * 100_000, count)


@pytest.mark.rule("PRV-002")
def test_each_missed_interval_counts_once_and_below_the_threshold_it_is_suspended() -> None:
    core = active()
    core.now_ms += 10 * MINUTE_MS
    seen = []
    while events := core.ask(MaintainProviders()):
        assert not isinstance(events, Refused)
        seen += [type(each).__name__ for each in events]
        if one(core).missed_heartbeats == 4:
            assert (one(core).health_ppm, one(core).status) == (600_000, ProviderStatus.ACTIVE), "at it is not below it"
    assert seen.count("HeartbeatMissed") == 9
    assert seen.count("ProviderStatusChanged") == 1
    provider = one(core)
    assert (provider.status, provider.status_changed_by) == (ProviderStatus.SUSPENDED, "holdfast")
    assert "health 500000 ppm" in provider.reason


@pytest.mark.rule("PRV-002")
def test_one_that_never_comes_back_ends_without_health_and_costs_nothing_more() -> None:
    core = active()
    core.now_ms += 10**9
    while core.ask(MaintainProviders()):
        pass
    assert (one(core).health_ppm, one(core).missed_heartbeats) == (0, 10)
    assert not core.state.provider_timers.due_ms_by_id


@pytest.mark.rule("PRV-002")
def test_heartbeats_in_time_bring_it_back_to_where_it_gets_work_and_no_further() -> None:
    core = active()
    core.now_ms += 7 * MINUTE_MS
    while core.ask(MaintainProviders()):
        pass
    assert (one(core).health_ppm, one(core).status) == (400_000, ProviderStatus.SUSPENDED)
    healths = []
    for _ in range(6):
        core.do(Heartbeat(ID, 4))
        healths.append((one(core).health_ppm, str(one(core).status)))
        core.now_ms += MINUTE_MS
    assert healths[2:5] == [(550_000, "SUSPENDED"), (600_000, "ACTIVE"), (600_000, "ACTIVE")]


@pytest.mark.rule("PRV-002")
def test_heartbeats_heal_when_they_come_in_time_not_when_they_come_often() -> None:
    core = active()
    happen(core, HealthChanged(ID, -900_000, "AS THE TEST SAYS", core.now_ms))
    for _ in range(50):
        core.do(Heartbeat(ID, 4))
    assert one(core).health_ppm == 100_000
    core.now_ms += 30_000
    core.do(Heartbeat(ID, 4))
    assert one(core).health_ppm == 150_000


@pytest.mark.rule("PRV-002")
def test_whom_an_operator_suspended_no_heartbeat_brings_back() -> None:
    core = active()
    core.do(ChangeStatus(ID, ProviderTransition.SUSPEND, "ops"))
    core.now_ms += MINUTE_MS
    core.do(Heartbeat(ID, 4))
    assert one(core).status is ProviderStatus.SUSPENDED
    core.do(ChangeStatus(ID, ProviderTransition.RECOVER, "ops"))
    assert one(core).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-002")
def test_whom_an_operator_recovers_gets_its_chance() -> None:
    core = active()
    core.now_ms += 10 * MINUTE_MS
    while core.ask(MaintainProviders()):
        pass
    core.do(ChangeStatus(ID, ProviderTransition.RECOVER, "ops"))
    assert (one(core).health_ppm, one(core).status) == (600_000, ProviderStatus.ACTIVE)


@pytest.mark.rule("PRV-002")
def test_failures_below_the_threshold_suspend_too() -> None:
    core = active()
    for _ in range(5):
        fail(core, "LEASE_EXPIRED")
    assert (one(core).health_ppm, one(core).status) == (500_000, ProviderStatus.ACTIVE)
    step = next(each for each in core.do(MaintainProviders()) if isinstance(each, ProviderStatusChanged))
    assert (step.after, step.actor) == (ProviderStatus.SUSPENDED, "holdfast")


@pytest.mark.rule("PRV-002")
def test_a_heartbeat_carries_load_and_versions_and_says_what_is_supported() -> None:
    core = active()
    core.do(Heartbeat(ID, 4, 2, "agent 1.2", capabilities_digest(one(core).capabilities)))
    assert (one(core).load, one(core).versions) == (2, "agent 1.2")
    refused = core.ask(Heartbeat(ID, 4, 2, "agent 1.2", bytes(32)))
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.hint) == ("PRV-002", "register again")
    for wrong in (Heartbeat(ID, -1), Heartbeat(ID, 1, -1), Heartbeat(ID, 1, 0, "a\0b")):
        outcome = core.ask(wrong)
        assert isinstance(outcome, Refused)
        assert outcome.name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ the node was away


def go_down_for(core: CoreDriver, outage_ms: int, term: int = 2) -> None:
    core.now_ms += outage_ms
    happen(core, OwnershipTaken(Term(term), "node", "", outage_ms, core.now_ms))


@pytest.mark.rule("LEA-008")
def test_heartbeats_that_the_node_could_not_hear_are_not_missed() -> None:
    core = active()
    before_ms = one(core).heartbeat_ms
    go_down_for(core, 10 * MINUTE_MS)
    first = core.do(MaintainProviders())
    assert [type(each) for each in first] == [OutageCredited]
    assert one(core).heartbeat_ms == before_ms + 10 * MINUTE_MS
    assert core.ask(MaintainProviders()) == ()
    assert (one(core).health_ppm, one(core).status) == (HEALTH_MAX_PPM, ProviderStatus.ACTIVE)


@pytest.mark.rule("LEA-008")
@pytest.mark.parametrize(("old_ms", "is_forgiven"), [(179_999, True), (180_000, False)])
def test_a_heartbeat_that_was_stale_when_the_node_went_stays_stale(old_ms: int, is_forgiven: bool) -> None:
    core = active()
    core.now_ms += old_ms
    go_down_for(core, MINUTE_MS)
    core.do(MaintainProviders())
    assert (one(core).heartbeat_ms > BEGIN_MS) is is_forgiven


@pytest.mark.rule("LEA-008")
def test_an_outage_is_credited_once_and_not_to_those_who_were_heard_after_it() -> None:
    core = active()
    go_down_for(core, MINUTE_MS)
    core.do(Heartbeat(ID, 4))
    heard_ms = one(core).heartbeat_ms
    core.do(MaintainProviders())
    assert one(core).heartbeat_ms == heard_ms
    assert core.ask(MaintainProviders()) == ()
    assert not revoke.is_maintenance_due(core.state, core.now_ms)
