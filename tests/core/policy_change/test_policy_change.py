"""Which policy counts: journaled, kept in snapshots, the same for whoever folds; jobs are ranked by it at once."""

from __future__ import annotations

import msgspec
import pytest
from tests.core import naive
from tests.core.commands import DEVELOPMENT, refused
from tests.core.core_driver import CoreDriver
from tests.core.fleet import enqueue_job, fail_lease, fleet, lenient_policy

from holdfast.core import state_machine
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Network, TaskId
from holdfast.core.job.model import JobState
from holdfast.core.policy import ChainPolicy, Policy, PriorityPolicy, ProviderPolicy
from holdfast.core.policy_change.messages import AdoptPolicy, PolicyAdopted
from holdfast.core.policy_change.model import adopted_policy
from holdfast.core.queue.messages import CancelJob
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

AGE_ONLY = PriorityPolicy(w_fee=0, w_age=250, w_size=0, w_tier=0)
OTHER = Policy(network=Network.DEVELOPMENT, priority=AGE_ONLY, chain=ChainPolicy(finality_depth=3))


def with_priority(core: CoreDriver, priority: PriorityPolicy) -> Policy:
    return msgspec.structs.replace(core.state.policy, priority=priority)


def in_order(core: CoreDriver) -> list[TaskId]:
    return list(core.state.queue.ready_queue.in_order())


@pytest.mark.rule("PRI-003")
def test_another_policy_ranks_all_waiting_jobs_anew_in_one_event() -> None:
    core = fleet(1, slots=1)
    working = enqueue_job(core, 0, max_fee=900)
    core.match()
    for nonce, fee in ((1, 10), (2, 500), (3, 90)):
        core.now_ms += 1_000
        enqueue_job(core, nonce, max_fee=fee)
    by_fee, waiting = in_order(core), [job for job in core.state.queue.jobs if job != working]
    (event,) = core.do(AdoptPolicy(with_priority(core, AGE_ONLY)))
    assert isinstance(event, PolicyAdopted)
    assert by_fee != in_order(core) == waiting  # now the oldest is first
    for job in core.state.queue.jobs.values():
        told = {"w_fee": 0, "w_age": 250, "w_size": 0, "w_tier": 0}
        assert job.priority == naive.priority(job.max_fee, job.size_bytes, "FREE", job.enqueue_ms, told)
    fail_lease(core, working)  # also who was at work stands where it should
    core.now_ms = core.state.queue.jobs[working].not_before_ms
    core.state.queue.ready_queue.promote(core.state.queue.jobs, core.now_ms)
    assert in_order(core)[0] == working


@pytest.mark.rule("PRI-003", "ENG-004")
def test_only_jobs_whose_key_changed_are_written_again_and_what_ended_keeps_its_own() -> None:
    core = fleet(0)
    ended, _ = enqueue_job(core, 1), enqueue_job(core, 2)
    core.do(CancelJob(ended))
    before = core.state.queue.jobs[ended].priority
    core.do(AdoptPolicy(core.state.policy))
    for rows in core.state.touched.values():
        rows.clear()
    core.do(AdoptPolicy(msgspec.structs.replace(core.state.policy, provider=ProviderPolicy(cooldown_ms=1))))
    assert core.state.touched["job"] == {}
    core.do(AdoptPolicy(with_priority(core, AGE_ONLY)))
    assert len(core.state.touched["job"]) == 1
    assert (core.state.queue.jobs[ended].state, core.state.queue.jobs[ended].priority) == (JobState.CANCELLED, before)


@pytest.mark.rule("PRI-003")
def test_the_same_policy_again_changes_nothing() -> None:
    core = fleet(0)
    assert len(core.do(AdoptPolicy(core.state.policy))) == 1
    assert core.do(AdoptPolicy(core.state.policy)) == ()


@pytest.mark.rule("PRI-003", "ENG-003")
def test_a_fold_needs_no_settings_of_its_own_and_a_snapshot_keeps_what_was_adopted() -> None:
    core = fleet(1, policy=lenient_policy())
    enqueue_job(core)
    core.do(AdoptPolicy(OTHER))
    core.match()
    core.seal(2)
    copy, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), Policy())
    assert copy.policy == core.state.policy == OTHER
    begun = State(DEVELOPMENT)
    for given in (DEVELOPMENT, msgspec.structs.replace(DEVELOPMENT, priority=AGE_ONLY), OTHER):
        begun = State(given)
        for event in core.events:
            state_machine.apply(begun, event)
        assert (begun.policy, digest(begun)) == (OTHER, digest(core.state))
    assert digest(copy) == digest(begun)


@pytest.mark.rule("PRI-003")
def test_a_journal_without_it_folds_with_the_policy_it_is_given() -> None:
    core = fleet(0)
    enqueue_job(core)
    for given in (DEVELOPMENT, OTHER):
        again = State(given)
        for event in core.events:
            state_machine.apply(again, event)
        assert (again.policy, adopted_policy(again.policy_bytes), digest(again)) == (given, None, digest(core.state))


@pytest.mark.rule("PRI-003", "CHN-006")
def test_a_chain_keeps_the_id_it_was_begun_with() -> None:
    core = fleet(0)
    other = msgspec.structs.replace(core.state.policy, chain_id=7)
    fresh = State(DEVELOPMENT)
    state_machine.apply(fresh, PolicyAdopted(msgspec.msgpack.encode(other)))
    assert fresh.chain.head.hash == State(other).chain.head.hash != State(DEVELOPMENT).chain.head.hash
    core.seal()
    no = refused(core.state, AdoptPolicy(other), core.now_ms)
    assert (no.rule, no.name) == ("CHN-006", "BadConfig")


@pytest.mark.rule("CAN-005", "PRI-003")
def test_a_policy_of_another_version_is_read_with_what_both_know() -> None:
    told = {"network": "development", "chain_id": 1337, "retry": {"failures_max": 2, "tries_of_tomorrow": 9}, "new": {}}
    state = State(DEVELOPMENT)
    state_machine.apply(state, PolicyAdopted(msgspec.msgpack.encode(told)))
    assert state.policy.retry.failures_max == 2
    assert state.policy.retry.cap_ms == Policy().retry.cap_ms
