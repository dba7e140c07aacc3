"""Health: failures and missed heartbeats take of it, work and presence give it back, and too little of it suspends."""

from __future__ import annotations

import pytest
from tests.core.lent import lent
from tests.core.test_policy import turned
from tests.core.ways import BEGIN_MS, Way, public

from holdfast.core import law
from holdfast.core.event import Event, OwnershipTaken
from holdfast.core.lease import ousting
from holdfast.core.lease.acts import LeaseClosed
from holdfast.core.lease.record import Lease, LeaseStatus
from holdfast.core.provider.acts import (
    Beat,
    HealthMoved,
    HeartbeatMissed,
    HeartbeatsForgiven,
    MoveProvider,
    ProviderMoved,
    Tend,
)
from holdfast.core.provider.decide import support_of
from holdfast.core.provider.health import DECAYS, blamed, praised
from holdfast.core.provider.record import HEALTH_WHOLE, Provider, ProviderAct, ProviderStatus, provider_id
from holdfast.core.refusal import Refused
from holdfast.core.state import State
from holdfast.core.values import Epoch

ID = provider_id(public(1))
MINUTE_MS = 60_000
FIRST_MISS_MS = 90_000
"""An interval and the grace after it."""


def active(**knobs: int) -> Way:
    way = Way(State(turned(Way().state.policy, **knobs)))
    way.funded()
    way.provider(1, slots=100)
    return way


def one(way: Way) -> Provider:
    return way.state.providers[ID]


def happen(way: Way, *events: Event) -> None:
    for event in events:
        law.apply(way.state, event)
        way.events.append(event)


def fail(way: Way, reason: str, lease: Lease | None = None) -> None:
    """A failure as the station of leases tells it: the lease ends and counts, then its provider is blamed."""
    lease = lease or lent(way, ID)
    status = LeaseStatus.EXPIRED if reason == "LEASE_EXPIRED" else LeaseStatus.CANCELLED
    closed = LeaseClosed(lease.id, status, reason, way.now_ms, True, way.now_ms)
    happen(way, closed, *blamed(way.state, one(way), reason, way.now_ms))


# ------------------------------------------------------------------------------------------------ failures


@pytest.mark.rule("RTY-003")
@pytest.mark.parametrize(
    ("reason", "left_ppm"),
    [("ACK_TIMEOUT", 980_000), ("LEASE_EXPIRED", 900_000), ("PROVIDER_FAIL", 980_000), ("PROOF_INVALID", 1_000_000)],
)
def test_each_failure_takes_its_part_of_health(reason: str, left_ppm: int) -> None:
    way = active()
    fail(way, reason)
    assert one(way).health_ppm == left_ppm
    assert all(knob.endswith("_decay_ppm") for knob in DECAYS.values())


@pytest.mark.rule("RTY-003")
def test_health_is_never_below_nothing_nor_above_whole() -> None:
    way = active(provider__lease_expired_decay_ppm=700_000, provider__success_recovery_ppm=900_000)
    for _ in range(2):
        fail(way, "LEASE_EXPIRED")
    assert one(way).health_ppm == 0
    for _ in range(2):
        happen(way, *praised(way.state, one(way), way.now_ms))
    assert one(way).health_ppm == HEALTH_WHOLE


@pytest.mark.rule("RTY-003")
def test_failures_that_end_in_one_decision_all_count() -> None:
    way = active()
    leases = [lent(way, ID, nonce=number) for number in (11, 12, 13)]
    closed = [LeaseClosed(each.id, LeaseStatus.EXPIRED, "LEASE_EXPIRED", way.now_ms, True, 0) for each in leases]
    decided = [(each, *blamed(way.state, one(way), "LEASE_EXPIRED", way.now_ms)) for each in closed]
    for events in decided:
        happen(way, *events)
    assert one(way).health_ppm == 700_000
    assert one(way).cooling_until_ms == way.now_ms + MINUTE_MS


@pytest.mark.rule("RTY-003")
def test_the_third_failure_in_a_row_cools_down_and_each_time_twice_as_long_up_to_the_cap() -> None:
    way = active(provider__ack_timeout_decay_ppm=0, provider__cooldown_cap_ms=3 * MINUTE_MS)
    waits = []
    for _ in range(4):
        for number in (1, 2, 3):
            way.now_ms = max(way.now_ms, one(way).cooling_until_ms)
            before_ms = one(way).cooling_until_ms
            fail(way, "ACK_TIMEOUT")
            assert (one(way).cooling_until_ms != before_ms) is (number == 3)
        waits.append(one(way).cooling_until_ms - way.now_ms)
    assert waits == [MINUTE_MS, 2 * MINUTE_MS, 3 * MINUTE_MS, 3 * MINUTE_MS]


@pytest.mark.rule("RTY-003")
def test_while_it_cools_down_what_it_was_given_before_starts_no_other_cooldown() -> None:
    way = active(provider__ack_timeout_decay_ppm=0)
    for _ in range(9):
        fail(way, "ACK_TIMEOUT")
    assert (one(way).cooling_until_ms, one(way).cooldowns) == (way.now_ms + MINUTE_MS, 1)


@pytest.mark.rule("RTY-003")
def test_work_done_well_heals_and_makes_the_next_cooldown_a_first_one() -> None:
    way = active()
    for _ in range(3):
        fail(way, "LEASE_EXPIRED")
    assert (one(way).health_ppm, one(way).cooldowns) == (700_000, 1)
    happen(way, *praised(way.state, one(way), way.now_ms))
    assert (one(way).health_ppm, one(way).cooldowns) == (720_000, 0)


@pytest.mark.rule("RTY-003")
def test_who_is_well_costs_no_event_for_doing_well() -> None:
    way = active()
    assert praised(way.state, one(way), way.now_ms) == ()


@pytest.mark.rule("RTY-003")
def test_what_the_system_cancelled_counts_against_nobody() -> None:
    way = active()
    lease = lent(way, ID)
    happen(way, LeaseClosed(lease.id, LeaseStatus.CANCELLED, "PROVIDER_JAILED", way.now_ms, False, way.now_ms))
    provider = one(way)
    assert (provider.health_ppm, provider.failed, provider.failures_in_row) == (HEALTH_WHOLE, 0, 0)


# ------------------------------------------------------------------------------------------------ heartbeats


@pytest.mark.rule("PRV-002")
@pytest.mark.parametrize(("later_ms", "count"), [(FIRST_MISS_MS - 1, 0), (FIRST_MISS_MS, 1)])
def test_a_heartbeat_is_missed_when_its_interval_and_the_grace_are_over(later_ms: int, count: int) -> None:
    way = active()
    way.now_ms += later_ms
    assert len([each for each in way.do(Tend()) if isinstance(each, HeartbeatMissed)]) == count
    assert (one(way).health_ppm, one(way).missed) == (HEALTH_WHOLE - count * 100_000, count)


@pytest.mark.rule("PRV-002")
def test_each_missed_interval_counts_once_and_below_the_threshold_it_is_suspended() -> None:
    way = active()
    way.now_ms += 10 * MINUTE_MS
    seen = []
    while events := way.ask(Tend()):
        assert not isinstance(events, Refused)
        seen += [type(each).__name__ for each in events]
        if one(way).missed == 4:
            assert (one(way).health_ppm, one(way).status) == (600_000, ProviderStatus.ACTIVE), "at it is not below it"
    assert seen.count("HeartbeatMissed") == 9
    assert seen.count("ProviderMoved") == 1
    provider = one(way)
    assert (provider.status, provider.moved_by) == (ProviderStatus.SUSPENDED, "holdfast")
    assert "health 500000 ppm" in provider.reason


@pytest.mark.rule("PRV-002")
def test_one_that_never_comes_back_ends_without_health_and_costs_nothing_more() -> None:
    way = active()
    way.now_ms += 10**9
    while way.ask(Tend()):
        pass
    assert (one(way).health_ppm, one(way).missed) == (0, 10)
    assert not way.state.ward.due


@pytest.mark.rule("PRV-002")
def test_heartbeats_in_time_bring_it_back_to_where_it_gets_work_and_no_further() -> None:
    way = active()
    way.now_ms += 7 * MINUTE_MS
    while way.ask(Tend()):
        pass
    assert (one(way).health_ppm, one(way).status) == (400_000, ProviderStatus.SUSPENDED)
    healths = []
    for _ in range(6):
        way.do(Beat(ID, 4))
        healths.append((one(way).health_ppm, str(one(way).status)))
        way.now_ms += MINUTE_MS
    assert healths[2:5] == [(550_000, "SUSPENDED"), (600_000, "ACTIVE"), (600_000, "ACTIVE")]


@pytest.mark.rule("PRV-002")
def test_heartbeats_heal_when_they_come_in_time_not_when_they_come_often() -> None:
    way = active()
    happen(way, HealthMoved(ID, -900_000, "AS THE TEST SAYS", way.now_ms))
    for _ in range(50):
        way.do(Beat(ID, 4))
    assert one(way).health_ppm == 100_000
    way.now_ms += 30_000
    way.do(Beat(ID, 4))
    assert one(way).health_ppm == 150_000


@pytest.mark.rule("PRV-002")
def test_whom_an_operator_suspended_no_heartbeat_brings_back() -> None:
    way = active()
    way.do(MoveProvider(ID, ProviderAct.SUSPEND, "ops"))
    way.now_ms += MINUTE_MS
    way.do(Beat(ID, 4))
    assert one(way).status is ProviderStatus.SUSPENDED
    way.do(MoveProvider(ID, ProviderAct.RECOVER, "ops"))
    assert one(way).status is ProviderStatus.ACTIVE


@pytest.mark.rule("PRV-002")
def test_whom_an_operator_takes_back_gets_its_chance() -> None:
    way = active()
    way.now_ms += 10 * MINUTE_MS
    while way.ask(Tend()):
        pass
    way.do(MoveProvider(ID, ProviderAct.RECOVER, "ops"))
    assert (one(way).health_ppm, one(way).status) == (600_000, ProviderStatus.ACTIVE)


@pytest.mark.rule("PRV-002")
def test_failures_below_the_threshold_suspend_too() -> None:
    way = active()
    for _ in range(5):
        fail(way, "LEASE_EXPIRED")
    assert (one(way).health_ppm, one(way).status) == (500_000, ProviderStatus.ACTIVE)
    step = next(each for each in way.do(Tend()) if isinstance(each, ProviderMoved))
    assert (step.after, step.actor) == (ProviderStatus.SUSPENDED, "holdfast")


@pytest.mark.rule("PRV-002")
def test_a_heartbeat_carries_load_and_versions_and_says_what_is_supported() -> None:
    way = active()
    way.do(Beat(ID, 4, 2, "agent 1.2", support_of(one(way).capabilities)))
    assert (one(way).load, one(way).versions) == (2, "agent 1.2")
    refused = way.ask(Beat(ID, 4, 2, "agent 1.2", bytes(32)))
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.hint) == ("PRV-002", "register anew")
    for wrong in (Beat(ID, -1), Beat(ID, 1, -1), Beat(ID, 1, 0, "a\0b")):
        outcome = way.ask(wrong)
        assert isinstance(outcome, Refused)
        assert outcome.name == "InvalidParams"


# ------------------------------------------------------------------------------------------------ the node was away


def away(way: Way, outage_ms: int, epoch: int = 2) -> None:
    way.now_ms += outage_ms
    happen(way, OwnershipTaken(Epoch(epoch), "node", "", outage_ms, way.now_ms))


@pytest.mark.rule("LEA-008")
def test_heartbeats_that_the_node_could_not_hear_are_not_missed() -> None:
    way = active()
    before_ms = one(way).heartbeat_ms
    away(way, 10 * MINUTE_MS)
    first = way.do(Tend())
    assert [type(each) for each in first] == [HeartbeatsForgiven]
    assert one(way).heartbeat_ms == before_ms + 10 * MINUTE_MS
    assert way.ask(Tend()) == ()
    assert (one(way).health_ppm, one(way).status) == (HEALTH_WHOLE, ProviderStatus.ACTIVE)


@pytest.mark.rule("LEA-008")
@pytest.mark.parametrize(("old_ms", "is_forgiven"), [(179_999, True), (180_000, False)])
def test_a_heartbeat_that_was_stale_when_the_node_went_stays_stale(old_ms: int, is_forgiven: bool) -> None:
    way = active()
    way.now_ms += old_ms
    away(way, MINUTE_MS)
    way.do(Tend())
    assert (one(way).heartbeat_ms > BEGIN_MS) is is_forgiven


@pytest.mark.rule("LEA-008")
def test_an_outage_is_forgiven_once_and_not_to_those_who_were_heard_after_it() -> None:
    way = active()
    away(way, MINUTE_MS)
    way.do(Beat(ID, 4))
    heard_ms = one(way).heartbeat_ms
    way.do(Tend())
    assert one(way).heartbeat_ms == heard_ms
    assert way.ask(Tend()) == ()
    assert not ousting.is_due(way.state, way.now_ms)
