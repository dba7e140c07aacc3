"""A verifier's own trouble (PRF-002): nobody is blamed; the job tries again, but not for ever, nor beyond its time."""

from __future__ import annotations

import pytest
from tests.core.core_driver import CoreDriver
from tests.core.fleet import completion_envelope, enqueue_job, exhaust_attempts, fleet, lenient_policy, retry_job

from holdfast.core.base.values import TaskId
from holdfast.core.job.model import JobState
from holdfast.core.policy import ResultPolicy, RetryPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion, VerifierFault
from holdfast.core.queue.requeue import Requeue

pytestmark = pytest.mark.rule("PRF-002")
TRIES = 3
FEW = RetryPolicy(failures_max=TRIES)


def submit_with_verifier_fault(core: CoreDriver, job: TaskId) -> None:
    """It is done and submitted, and nobody can judge it."""
    retry_job(core, job)
    lease = core.lease_of(job)
    core.do(SubmitCompletion(lease.id, lease.provider_id, completion_envelope(core, job, b"out")))
    core.do(RecordVerdict(lease.id, False, "it hung", fault=VerifierFault.VERIFIER_FAILED))


@pytest.mark.rule("RTY-001")
def test_verifier_faults_end_a_job_after_as_many_tries_as_it_may_fail_and_nobody_pays_for_it() -> None:
    core = fleet(policy=lenient_policy(retry=FEW))
    job = enqueue_job(core)
    for _ in range(TRIES - 1):
        submit_with_verifier_fault(core, job)
        assert core.state.queue.jobs[job].state is JobState.QUEUED
    submit_with_verifier_fault(core, job)
    found = core.state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.FAILED, "ATTEMPTS_EXHAUSTED")
    assert all(each.failed == 0 and each.slashed == 0 for each in core.state.providers.values())


@pytest.mark.rule("RTY-001")
def test_a_job_that_was_requeued_has_as_many_tries_again() -> None:
    core = fleet(policy=lenient_policy(retry=FEW))
    job = enqueue_job(core)
    exhaust_attempts(core, job)
    core.do(Requeue(job))
    for _ in range(TRIES - 1):
        submit_with_verifier_fault(core, job)
        assert core.state.queue.jobs[job].state is JobState.QUEUED
    submit_with_verifier_fault(core, job)
    assert core.state.queue.jobs[job].state is JobState.FAILED


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("blocks", "state"), [(4, JobState.QUEUED), (5, JobState.EXPIRED)])
def test_a_verifier_fault_after_the_last_block_for_a_result_ends_the_job(blocks: int, state: JobState) -> None:
    core = fleet(policy=lenient_policy(retry=FEW, result=ResultPolicy(result_ttl_blocks=4)))
    job = enqueue_job(core)
    retry_job(core, job)
    lease = core.lease_of(job)
    core.do(SubmitCompletion(lease.id, lease.provider_id, completion_envelope(core, job, b"out")))
    core.seal(blocks)  # what was submitted waits, however long the verdict takes
    core.do(RecordVerdict(lease.id, False, "it hung", fault=VerifierFault.VERIFIER_FAILED))
    assert core.state.queue.jobs[job].state is state
