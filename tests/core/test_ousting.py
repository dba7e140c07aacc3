"""Leases of those who may not work any more: they end without blame, and what was handed in waits for its verdict."""

from __future__ import annotations

import pytest
from tests.core.lent import lent
from tests.core.test_provider_health import happen
from tests.core.ways import Way, public

from holdfast.core.event import Event
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import LeaseClosed
from holdfast.core.provider.acts import HealthMoved, MoveProvider, ProviderMoved, Tend
from holdfast.core.provider.record import Provider, ProviderAct, ProviderStatus, provider_id
from holdfast.core.provider.sla import sentence

ID = provider_id(public(1))
ACTS = {
    ProviderAct.JAIL: "PROVIDER_JAILED",
    ProviderAct.SUSPEND: "PROVIDER_SUSPENDED",
    ProviderAct.RETIRE: "PROVIDER_RETIRED",
}


def working(leases: int = 3) -> Way:
    way = Way()
    way.funded()
    way.provider(1, slots=100)
    for number in range(leases):
        lent(way, ID, nonce=number + 1)
    return way


def one(way: Way) -> Provider:
    return way.state.providers[ID]


def closed(events: tuple[Event, ...]) -> list[LeaseClosed]:
    return [each for each in events if isinstance(each, LeaseClosed)]


@pytest.mark.rule("LEA-007")
@pytest.mark.parametrize(("act", "reason"), ACTS.items())
def test_its_leases_end_with_it_without_blame_and_the_jobs_wait_for_others_at_once(
    act: ProviderAct, reason: str
) -> None:
    way = working()
    ends = closed(way.do(MoveProvider(ID, act, "ops")))
    assert [(each.reason, each.is_failure, each.not_before_ms) for each in ends] == [(reason, False, way.now_ms)] * 3
    assert way.state.leases.by_id == {}
    jobs = way.state.queue.jobs.values()
    assert {(job.state, job.failures) for job in jobs} == {(JobState.QUEUED, 0)}
    assert (one(way).leases, one(way).failed, one(way).failures_in_row) == (0, 0, 0)


@pytest.mark.rule("LEA-007", "RCV-001")
def test_what_was_handed_in_is_left_to_its_verdict() -> None:
    way = working(2)
    job = next(iter(way.state.queue.jobs))
    way.submit(job)
    assert len(closed(way.do(MoveProvider(ID, ProviderAct.JAIL, "ops")))) == 1
    assert list(way.state.leases.by_job) == [job]
    assert way.ask(Tend()) == (), "it is looked at again later, not over and over"
    assert not way.state.ward.is_due(way.now_ms, way.state.open_height)
    way.judge(job)
    assert way.state.queue.jobs[job].state is JobState.COMPLETED


@pytest.mark.rule("LEA-007")
def test_who_is_jailed_for_an_offence_loses_its_leases_when_it_is_looked_after() -> None:
    way = working()
    happen(way, *sentence(way.state, one(way), "EQUIVOCATION", way.now_ms))
    assert (one(way).status, len(way.state.leases.by_id)) == (ProviderStatus.JAILED, 3)
    assert way.state.ward.is_due(way.now_ms, way.state.open_height)
    assert [each.reason for each in closed(way.do(Tend()))] == ["PROVIDER_JAILED"] * 3


@pytest.mark.rule("LEA-007", "PRV-002")
def test_who_is_too_poor_is_suspended_and_its_leases_end_in_the_same_decision() -> None:
    way = working()
    happen(way, HealthMoved(ID, -500_000, "AS THE TEST SAYS", way.now_ms))
    events = way.do(Tend())
    assert [type(each) for each in events] == [ProviderMoved, LeaseClosed, LeaseClosed, LeaseClosed]


@pytest.mark.rule("LEA-007")
def test_many_leases_end_in_bounded_lots() -> None:
    way = working(7)
    happen(way, *sentence(way.state, one(way), "EQUIVOCATION", way.now_ms))
    counts = []
    while events := way.do(Tend(limit=3)):
        counts.append(len(closed(events)))
    assert counts == [3, 3, 1]


def test_many_providers_are_looked_after_in_bounded_lots_each_once() -> None:
    way = Way()
    for number in range(1, 11):
        way.provider(number)
    way.now_ms += 90_000
    counts = []
    while events := way.do(Tend(limit=4)):
        counts.append(len({each.id for each in events}))  # type: ignore[attr-defined]
    assert counts == [4, 4, 2]


def test_letting_out_and_taking_back_end_no_lease() -> None:
    way = working()
    way.do(MoveProvider(ID, ProviderAct.SUSPEND, "ops"))
    assert closed(way.do(MoveProvider(ID, ProviderAct.RECOVER, "ops"))) == []
