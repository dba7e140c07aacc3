"""Leases of those who may not work any more: they end without penalty, and what was submitted waits for its verdict."""

from __future__ import annotations

import pytest
from tests.core.core_driver import CoreDriver, public
from tests.core.lease.manual_lease import grant_lease
from tests.core.provider.test_provider_health import happen

from holdfast.core.base.event import Event
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import LeaseClosed
from holdfast.core.provider.messages import ChangeStatus, HealthChanged, MaintainProviders, ProviderStatusChanged
from holdfast.core.provider.model import Provider, ProviderStatus, ProviderTransition, provider_id
from holdfast.core.provider.sla import on_offence

ID = provider_id(public(1))
REASONS = {
    ProviderTransition.JAIL: "PROVIDER_JAILED",
    ProviderTransition.SUSPEND: "PROVIDER_SUSPENDED",
    ProviderTransition.RETIRE: "PROVIDER_RETIRED",
}


def working(leases: int = 3) -> CoreDriver:
    core = CoreDriver()
    core.funded()
    core.provider(1, slots=100)
    for number in range(leases):
        grant_lease(core, ID, nonce=number + 1)
    return core


def one(core: CoreDriver) -> Provider:
    return core.state.providers[ID]


def closed(events: tuple[Event, ...]) -> list[LeaseClosed]:
    return [each for each in events if isinstance(each, LeaseClosed)]


@pytest.mark.rule("LEA-007")
@pytest.mark.parametrize(("act", "reason"), REASONS.items())
def test_its_leases_end_with_it_without_blame_and_the_jobs_wait_for_others_at_once(
    act: ProviderTransition, reason: str
) -> None:
    core = working()
    ends = closed(core.do(ChangeStatus(ID, act, "ops")))
    assert [(each.reason, each.is_failure, each.not_before_ms) for each in ends] == [(reason, False, core.now_ms)] * 3
    assert core.state.leases.by_id == {}
    jobs = core.state.queue.jobs.values()
    assert {(job.state, job.failures) for job in jobs} == {(JobState.QUEUED, 0)}
    assert (one(core).leases, one(core).failed, one(core).failures_in_row) == (0, 0, 0)


@pytest.mark.rule("LEA-007", "RCV-001")
def test_what_was_submitted_is_left_to_its_verdict() -> None:
    core = working(2)
    job = next(iter(core.state.queue.jobs))
    core.submit(job)
    assert len(closed(core.do(ChangeStatus(ID, ProviderTransition.JAIL, "ops")))) == 1
    assert list(core.state.leases.by_job) == [job]
    assert core.ask(MaintainProviders()) == (), "it is looked at again later, not over and over"
    assert not core.state.provider_timers.is_due(core.now_ms, core.state.open_height)
    core.record_verdict(job)
    assert core.state.queue.jobs[job].state is JobState.COMPLETED


@pytest.mark.rule("LEA-007")
def test_who_is_jailed_for_an_offence_loses_its_leases_when_providers_are_maintained() -> None:
    core = working()
    happen(core, *on_offence(core.state, one(core), "EQUIVOCATION", core.now_ms))
    assert (one(core).status, len(core.state.leases.by_id)) == (ProviderStatus.JAILED, 3)
    assert core.state.provider_timers.is_due(core.now_ms, core.state.open_height)
    assert [each.reason for each in closed(core.do(MaintainProviders()))] == ["PROVIDER_JAILED"] * 3


@pytest.mark.rule("LEA-007", "PRV-002")
def test_whose_health_is_too_low_is_suspended_and_its_leases_end_in_the_same_decision() -> None:
    core = working()
    happen(core, HealthChanged(ID, -500_000, "AS THE TEST SAYS", core.now_ms))
    events = core.do(MaintainProviders())
    assert [type(each) for each in events] == [ProviderStatusChanged, LeaseClosed, LeaseClosed, LeaseClosed]


@pytest.mark.rule("LEA-007")
def test_many_leases_end_in_bounded_runs() -> None:
    core = working(7)
    happen(core, *on_offence(core.state, one(core), "EQUIVOCATION", core.now_ms))
    counts = []
    while events := core.do(MaintainProviders(limit=3)):
        counts.append(len(closed(events)))
    assert counts == [3, 3, 1]


def test_many_providers_are_maintained_in_bounded_runs_each_once() -> None:
    core = CoreDriver()
    for number in range(1, 11):
        core.provider(number)
    core.now_ms += 90_000
    counts = []
    while events := core.do(MaintainProviders(limit=4)):
        counts.append(len({each.id for each in events}))  # type: ignore[attr-defined]
    assert counts == [4, 4, 2]


def test_recovering_a_provider_ends_no_lease() -> None:
    core = working()
    core.do(ChangeStatus(ID, ProviderTransition.SUSPEND, "ops"))
    assert closed(core.do(ChangeStatus(ID, ProviderTransition.RECOVER, "ops"))) == []
