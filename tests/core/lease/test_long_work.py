"""Long work: `run_ms_max` lifts the number of renewals and the time to live after the first lease; a full executor."""

from __future__ import annotations

import pytest
from tests.core.core_driver import ALICE
from tests.core.fleet import enqueue_job, fleet

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Tier
from holdfast.core.job.job_class import denied_until, job_class
from holdfast.core.job.spec import RUN_MS_MAX, read_payload
from holdfast.core.lease.messages import DeclineLease, RenewLease
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue


@pytest.mark.rule("LEA-004", "TTL-001")
def test_a_job_that_may_run_long_renews_its_lease_until_then_and_no_longer() -> None:
    core = fleet()
    policy = core.state.policy
    run_ms = policy.ttl.relative_ms + policy.lease.ai_ms
    payload = {"kind": "COMPUTE", "spec": {"runtime": "wc"}, "run_ms_max": run_ms}
    command = build_enqueue(policy, ALICE, Tier.FREE, payload, 100, 1)
    assert isinstance(command, Enqueue)
    core.do(command)
    core.match()
    (job,) = core.state.queue.jobs
    core.ack(job)
    renewals = 0
    while core.lease_of(job).t_deadline_ms < core.lease_of(job).t_start_ms + run_ms:
        lease = core.lease_of(job)
        core.now_ms = lease.renew_by_ms - 1
        renewals += 1
        core.do(RenewLease(lease.id, lease.provider_id, renewals))
    assert renewals > policy.lease.renewals_max
    lease = core.lease_of(job)
    assert isinstance(core.ask(RenewLease(lease.id, lease.provider_id, renewals + 1)), Refused)
    assert core.state.queue.jobs[job].relative_expires_ms == lease.t_start_ms + run_ms


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(("run_ms", "is_good"), [(0, False), (1, True), (RUN_MS_MAX, True), (RUN_MS_MAX + 1, False)])
def test_an_attempt_may_run_for_seven_days_at_most(run_ms: int, is_good: bool) -> None:
    found = read_payload({"kind": "COMPUTE", "spec": {"runtime": "wc"}, "run_ms_max": run_ms})
    assert isinstance(found, Refused) is not is_good


@pytest.mark.rule("LEA-006")
@pytest.mark.parametrize(("reason", "pause_ms"), [("BUSY: wc", 1_000), ("DECLINED: no", 30_000)])
def test_a_full_executor_is_passed_over_for_a_second(reason: str, pause_ms: int) -> None:
    core = fleet()
    job = enqueue_job(core, kind="COMPUTE")
    core.match()
    lease = core.lease_of(job)
    core.do(DeclineLease(lease.id, lease.provider_id, reason))
    record = core.state.queue.jobs[job]
    until_ms = denied_until(core.state.class_denials, lease.provider_id, job_class(record.kind, record.requirements))
    assert until_ms - core.now_ms == pause_ms
