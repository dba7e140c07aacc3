"""A verifier's own trouble (PRF-002): nobody is blamed; the job tries again, but not for ever, nor beyond its time."""

from __future__ import annotations

import pytest
from tests.core.fleet import asked_for, exhausted, fleet, patient, sent, tried_again
from tests.core.ways import Way

from holdfast.core.job.record import JobState
from holdfast.core.policy import ResultPolicy, RetryPolicy
from holdfast.core.proof.acts import Judge, Submit, Trouble
from holdfast.core.queue.requeue import Requeue
from holdfast.core.values import TaskId

pytestmark = pytest.mark.rule("PRF-002")
TRIES = 3
FEW = RetryPolicy(failures_max=TRIES)


def in_trouble(way: Way, job: TaskId) -> None:
    """It is done and handed in, and nobody can judge it."""
    tried_again(way, job)
    lease = way.lease_of(job)
    way.do(Submit(lease.id, lease.provider_id, sent(way, job, b"out")))
    way.do(Judge(lease.id, False, "it hung", trouble=Trouble.VERIFIER_FAILED))


@pytest.mark.rule("RTY-001")
def test_trouble_ends_a_job_after_as_many_tries_as_it_may_fail_and_nobody_pays_for_it() -> None:
    way = fleet(policy=patient(retry=FEW))
    job = asked_for(way)
    for _ in range(TRIES - 1):
        in_trouble(way, job)
        assert way.state.queue.jobs[job].state is JobState.QUEUED
    in_trouble(way, job)
    found = way.state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.FAILED, "ATTEMPTS_EXHAUSTED")
    assert all(each.failed == 0 and each.slashed == 0 for each in way.state.providers.values())


@pytest.mark.rule("RTY-001")
def test_a_job_that_was_put_back_has_as_many_tries_again() -> None:
    way = fleet(policy=patient(retry=FEW))
    job = asked_for(way)
    exhausted(way, job)
    way.do(Requeue(job))
    for _ in range(TRIES - 1):
        in_trouble(way, job)
        assert way.state.queue.jobs[job].state is JobState.QUEUED
    in_trouble(way, job)
    assert way.state.queue.jobs[job].state is JobState.FAILED


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "state"), [(4, JobState.QUEUED), (5, JobState.EXPIRED)])
def test_trouble_after_the_last_block_for_a_result_ends_the_job(blocks: int, state: JobState) -> None:
    way = fleet(policy=patient(retry=FEW, result=ResultPolicy(result_ttl_blocks=4)))
    job = asked_for(way)
    tried_again(way, job)
    lease = way.lease_of(job)
    way.do(Submit(lease.id, lease.provider_id, sent(way, job, b"out")))
    way.seal(blocks)  # what was handed in waits, however long the verdict takes
    way.do(Judge(lease.id, False, "it hung", trouble=Trouble.VERIFIER_FAILED))
    assert way.state.queue.jobs[job].state is state
