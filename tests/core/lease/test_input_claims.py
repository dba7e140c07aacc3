"""A provider calls an input invalid: it loses nothing, two of them end the job, and who submits many waits."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import ALICE, CoreDriver
from tests.core.fleet import enqueue_job, fleet, lenient_policy
from tests.core.lease.quorums import enqueue_quorum_job, replicas, submit

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event
from holdfast.core.base.values import TaskId, Tier
from holdfast.core.job.model import FailedJob, JobState
from holdfast.core.lease.messages import FailLease, LeaseClosed
from holdfast.core.match.input_claims import InputClaimKept, JudgeInputClaims, is_claim_due
from holdfast.core.policy import AdmissionPolicy, ChainPolicy
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Drain, HealthChanged, Heartbeat
from holdfast.core.provider.sla import OFFENCES
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, JobFailed
from holdfast.core.queue.requeue import Requeue

pytestmark = pytest.mark.rule("JOB-012")
SAYS = "INVALID_INPUT: circuit, line 3: unknown gate"


def claim(core: CoreDriver, job: TaskId, says: str = SAYS) -> tuple[Event, ...]:
    lease = core.lease_of(job)
    return core.do(FailLease(lease.id, lease.provider_id, says))


def own_account(core: CoreDriver, *accounts: str) -> None:
    for provider, account in zip(core.state.providers.values(), accounts, strict=False):
        provider.account = account  # type: ignore[assignment]


def test_who_calls_an_input_invalid_loses_nothing_and_is_passed_over_for_this_job_alone() -> None:
    core = fleet(1)
    before = msgspec.structs.replace(next(iter(core.state.providers.values())))
    job, other = enqueue_job(core, 1), enqueue_job(core, 2)
    core.match()
    (closed,) = claim(core, job)
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.is_failure, closed.detail) == ("INVALID_INPUT", False, SAYS)
    after = next(iter(core.state.providers.values()))
    lost = ("health_ppm", "stake", "failures_in_row", "failed", "cooling_until_ms", "status")
    assert [getattr(after, name) for name in lost] == [getattr(before, name) for name in lost]
    assert core.match() == (), "it does not get this job again"
    assert core.lease_of(other).provider_id == after.id
    enqueue_job(core, 3)
    assert len(core.match()) == 1, "but others of the same class"
    assert core.state.attempts[job][-1].detail == SAYS


def test_two_providers_of_different_accounts_end_the_job_and_its_money_goes_back() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    claim(core, job)
    assert core.state.queue.jobs[job].state is JobState.QUEUED
    core.match()
    events = claim(core, job)
    assert isinstance(events[-1], JobFailed)
    found = core.state.queue.jobs[job]
    assert (found.state, found.reason, found.charged, found.failures) == (JobState.FAILED, "INVALID_INPUT", 0, 0)
    assert core.state.input_claims == {}
    row = core.state.touched["failed_job"][found.event]
    assert isinstance(row, FailedJob)
    assert row.reason == "INVALID_INPUT"


@pytest.mark.parametrize("is_staked", [True, False])
def test_two_of_one_account_or_without_stake_are_not_two(is_staked: bool) -> None:
    core = fleet(3)
    own_account(core, "same", "same", "third")
    if not is_staked:
        own_account(core, "a", "b", "c")
    job = enqueue_job(core)
    ended = []
    for _ in range(3):
        core.match()
        lease = core.lease_of(job)
        if not is_staked:
            core.state.providers[lease.provider_id].stake = 0
        claim(core, job)
        ended.append((core.state.providers[lease.provider_id].account, core.state.queue.jobs[job].state))
    accounts = {account for account, _ in ended}
    assert ended[-1][1] is (JobState.FAILED if is_staked else JobState.QUEUED)
    assert len(accounts) == (2 if is_staked else 3)


def test_replicas_count_for_their_job() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    claim(core, one)
    assert core.match() == (), "the claimant gets no other replica"
    claim(core, two)
    assert core.state.queue.jobs[job].state is JobState.FAILED
    assert core.state.attempts[three][-1].reason == "INVALID_INPUT"
    assert core.state.leases.by_id == {}


def test_who_has_submitted_is_judged_before_claims_end_the_job() -> None:
    core = fleet(3)
    job = enqueue_quorum_job(core)
    core.match()
    one, two, three = (each.id for each in replicas(core, job))
    submit(core, three)
    for replica in (one, two):
        assert not any(isinstance(event, JobFailed) for event in claim(core, replica))
    assert core.lease_of(three).submitted is not None


def test_where_no_other_provider_can_try_one_claim_is_enough_after_a_minute() -> None:
    core = fleet(1)
    job = enqueue_job(core)
    core.match()
    claim(core, job)
    core.now_ms += 59_999
    assert not is_claim_due(core.state, core.now_ms)
    assert core.do(JudgeInputClaims()) == ()
    core.now_ms += 1
    assert is_claim_due(core.state, core.now_ms)
    assert isinstance(core.do(JudgeInputClaims())[-1], JobFailed)
    assert not is_claim_due(core.state, core.now_ms)


def test_where_another_could_try_the_job_waits_for_it() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    claim(core, job)
    core.now_ms += 60_000
    (kept,) = core.do(JudgeInputClaims())
    assert kept == InputClaimKept(job, core.now_ms + 60_000)
    for id_ in core.state.providers:
        core.do(Drain(id_, True, "the test"))
    core.now_ms += 60_000
    assert isinstance(core.do(JudgeInputClaims())[-1], JobFailed)


def test_one_that_takes_no_work_now_is_not_waited_for() -> None:
    """Paused, about to stop, or without room on its disk: it would not try."""
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    claim(core, job)
    for provider in core.state.providers.values():
        core.do(Heartbeat(provider.id, slots=0))
    core.now_ms += 60_000
    assert isinstance(core.do(JudgeInputClaims())[-1], JobFailed)


def test_while_another_works_on_it_the_job_does_not_end_by_one_claim() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    claim(core, job)
    core.match()
    lease = core.lease_of(job)
    core.do(Drain(lease.provider_id, True, "the test"))
    core.now_ms += 60_000
    assert core.do(JudgeInputClaims()) == (InputClaimKept(job, core.now_ms + 60_000),)
    assert core.lease_of(job).id == lease.id


def test_it_can_be_requeued_once_and_not_to_those_who_claimed() -> None:
    core = fleet(4, money=1_000_000)
    job = enqueue_job(core)
    for _ in range(2):
        core.match()
        claim(core, job)
    first = {lease.provider_id for lease in core.state.attempts[job]}
    core.do(Requeue(job))
    for _ in range(2):
        core.match()
        assert core.lease_of(job).provider_id not in first
        claim(core, job)
    assert core.state.queue.jobs[job].state is JobState.FAILED
    refused = core.ask(Requeue(job))
    assert isinstance(refused, Refused)
    assert refused.rule == "JOB-012"


def test_after_ten_such_jobs_in_an_epoch_a_requester_has_one_in_flight() -> None:
    policy = lenient_policy(
        admission=AdmissionPolicy(invalid_inputs_max=2), chain=ChainPolicy(epoch_blocks=10, finality_depth=12)
    )
    core = fleet(2, policy=policy)
    for nonce in range(2):
        job = enqueue_job(core, nonce)
        for _ in range(2):
            core.match()
            claim(core, job)
    enqueue_job(core, 10)
    refused = core.ask(command(core, 11))
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.name) == ("JOB-012", "QueueFull")
    core.seal(10)
    assert not isinstance(core.ask(command(core, 11)), Refused), "another epoch"


def command(core: CoreDriver, nonce: int) -> Enqueue:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    made = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, 10, nonce)
    assert isinstance(made, Enqueue)
    return made


@pytest.mark.parametrize(("proof", "lost_ppm"), [("attested", 0), ("recompute", 20_000)])
def test_a_claim_is_wrong_only_where_a_proof_contradicts_it(proof: str, lost_ppm: int) -> None:
    core = fleet(2)
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}, "proof": proof}
    made = build_enqueue(core.state.policy, ALICE, Tier.FREE, payload, 100, 1)
    assert isinstance(made, Enqueue)
    core.do(made)
    (job,) = core.state.queue.jobs
    core.match()
    claimant = core.lease_of(job).provider_id
    claim(core, job)
    core.match()
    lease = core.lease_of(job)
    envelope = msgspec.structs.replace(core.envelope(job, b"out"), method=proof)
    core.do(SubmitCompletion(lease.id, lease.provider_id, envelope))
    core.do(RecordVerdict(core.lease_of(job).id, is_good=True))
    assert core.state.providers[claimant].health_ppm == 1_000_000 - lost_ppm
    assert "INVALID_INPUT" not in OFFENCES, "stake is never touched by it"
    assert core.state.input_claims == {}


def test_a_claim_that_the_nodes_checker_contradicts_is_wrong_at_once_and_counts_for_nobody() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    lease = core.lease_of(job)
    closed, changed = core.do(FailLease(lease.id, lease.provider_id, SAYS, is_input_valid=True))
    assert isinstance(closed, LeaseClosed)
    assert (closed.reason, closed.is_failure, closed.detail) == ("PROVIDER_FAIL", True, SAYS)
    assert isinstance(changed, HealthChanged)
    assert core.state.providers[lease.provider_id].health_ppm == 1_000_000 - 20_000
    assert core.state.input_claims == {}


def test_a_claim_that_the_nodes_checker_confirms_ends_the_job_without_a_second_one() -> None:
    core = fleet(2)
    job = enqueue_job(core)
    core.match()
    lease = core.lease_of(job)
    events = core.do(FailLease(lease.id, lease.provider_id, SAYS, is_input_valid=False))
    assert isinstance(events[-1], JobFailed)
    found = core.state.queue.jobs[job]
    assert (found.state, found.reason, found.failures) == (JobState.FAILED, "INVALID_INPUT", 0)
    assert core.state.providers[lease.provider_id].health_ppm == 1_000_000


def test_what_a_provider_says_of_any_failure_is_kept_with_the_attempt() -> None:
    core = fleet(1)
    job = enqueue_job(core)
    core.match()
    claim(core, job, "EXECUTOR_ERROR: \x1b[31mno\nmemory" + "x" * 600)
    (lease,) = core.state.attempts[job]
    assert (lease.reason, len(lease.detail)) == ("PROVIDER_FAIL", 500)
    assert lease.detail.startswith("EXECUTOR_ERROR:  [31mno memoryx")
