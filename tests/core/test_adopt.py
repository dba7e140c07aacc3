"""Which policy counts: journaled, kept in snapshots, the same for whoever folds; jobs are ranked by it at once."""

from __future__ import annotations

import msgspec
import pytest
from tests.core import naive
from tests.core.books import DEVELOPMENT, refused
from tests.core.fleet import asked_for, fleet, given_back, patient
from tests.core.ways import Way

from holdfast.core import law
from holdfast.core.adopt import AdoptPolicy, PolicyAdopted, adopted_policy
from holdfast.core.event import Tip
from holdfast.core.job.record import JobState
from holdfast.core.policy import ChainPolicy, Policy, PriorityPolicy, ProviderPolicy
from holdfast.core.queue.acts import Cancel
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Network, TaskId

AGE_ONLY = PriorityPolicy(w_fee=0, w_age=250, w_size=0, w_tier=0)
OTHER = Policy(network=Network.DEVELOPMENT, priority=AGE_ONLY, chain=ChainPolicy(finality_depth=3))


def with_priority(way: Way, priority: PriorityPolicy) -> Policy:
    return msgspec.structs.replace(way.state.policy, priority=priority)


def in_order(way: Way) -> list[TaskId]:
    return list(way.state.queue.line.in_order())


@pytest.mark.rule("PRI-003")
def test_another_policy_ranks_all_waiting_jobs_anew_in_one_event() -> None:
    way = fleet(1, slots=1)
    working = asked_for(way, 0, max_fee=900)
    way.match()
    for nonce, fee in ((1, 10), (2, 500), (3, 90)):
        way.now_ms += 1_000
        asked_for(way, nonce, max_fee=fee)
    by_fee, waiting = in_order(way), [job for job in way.state.queue.jobs if job != working]
    (event,) = way.do(AdoptPolicy(with_priority(way, AGE_ONLY)))
    assert isinstance(event, PolicyAdopted)
    assert by_fee != in_order(way) == waiting  # now the oldest is first
    for job in way.state.queue.jobs.values():
        told = {"w_fee": 0, "w_age": 250, "w_size": 0, "w_tier": 0}
        assert job.priority == naive.priority(job.max_fee, job.size_bytes, "FREE", job.enqueue_ms, told)
    given_back(way, working)  # also who was at work stands where it should
    way.now_ms = way.state.queue.jobs[working].not_before_ms
    way.state.queue.line.promote(way.state.queue.jobs, way.now_ms)
    assert in_order(way)[0] == working


@pytest.mark.rule("PRI-003", "ENG-004")
def test_only_jobs_whose_key_changed_are_written_again_and_what_ended_keeps_its_own() -> None:
    way = fleet(0)
    ended, _ = asked_for(way, 1), asked_for(way, 2)
    way.do(Cancel(ended))
    before = way.state.queue.jobs[ended].priority
    way.do(AdoptPolicy(way.state.policy))
    for rows in way.state.touched.values():
        rows.clear()
    way.do(AdoptPolicy(msgspec.structs.replace(way.state.policy, provider=ProviderPolicy(cooldown_ms=1))))
    assert way.state.touched["job"] == {}
    way.do(AdoptPolicy(with_priority(way, AGE_ONLY)))
    assert len(way.state.touched["job"]) == 1
    assert (way.state.queue.jobs[ended].state, way.state.queue.jobs[ended].priority) == (JobState.CANCELLED, before)


@pytest.mark.rule("PRI-003")
def test_the_same_policy_again_changes_nothing() -> None:
    way = fleet(0)
    assert len(way.do(AdoptPolicy(way.state.policy))) == 1
    assert way.do(AdoptPolicy(way.state.policy)) == ()


@pytest.mark.rule("PRI-003", "ENG-003")
def test_a_fold_needs_no_settings_of_its_own_and_a_snapshot_keeps_what_was_adopted() -> None:
    way = fleet(1, policy=patient())
    asked_for(way)
    way.do(AdoptPolicy(OTHER))
    way.match()
    way.seal(2)
    copy, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), Policy())
    assert copy.policy == way.state.policy == OTHER
    begun = State(DEVELOPMENT)
    for given in (DEVELOPMENT, Policy(priority=AGE_ONLY), OTHER):
        begun = State(given)
        for event in way.events:
            law.apply(begun, event)
        assert (begun.policy, digest(begun)) == (OTHER, digest(way.state))
    assert digest(copy) == digest(begun)


@pytest.mark.rule("PRI-003")
def test_a_journal_without_it_folds_with_the_policy_it_is_given() -> None:
    way = fleet(0)
    asked_for(way)
    for given in (DEVELOPMENT, OTHER):
        again = State(given)
        for event in way.events:
            law.apply(again, event)
        assert (again.policy, adopted_policy(again.adopted), digest(again)) == (given, None, digest(way.state))


@pytest.mark.rule("PRI-003", "CHN-006")
def test_a_chain_keeps_the_id_it_was_begun_with() -> None:
    way = fleet(0)
    other = msgspec.structs.replace(way.state.policy, chain_id=7)
    fresh = State(DEVELOPMENT)
    law.apply(fresh, PolicyAdopted(msgspec.msgpack.encode(other)))
    assert fresh.chain.head.hash == State(other).chain.head.hash != State(DEVELOPMENT).chain.head.hash
    way.seal()
    no = refused(way.state, AdoptPolicy(other), way.now_ms)
    assert (no.rule, no.name) == ("CHN-006", "BadConfig")


@pytest.mark.rule("CAN-005", "PRI-003")
def test_a_policy_of_another_version_is_read_with_what_both_know() -> None:
    told = {"network": "development", "chain_id": 1337, "retry": {"failures_max": 2, "tries_of_tomorrow": 9}, "new": {}}
    state = State(DEVELOPMENT)
    law.apply(state, PolicyAdopted(msgspec.msgpack.encode(told)))
    assert state.policy.retry.failures_max == 2
    assert state.policy.retry.cap_ms == Policy().retry.cap_ms
