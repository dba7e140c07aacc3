"""What is counted beside the facts: by rule and not by what somebody says, from the times of events, never digested."""

from __future__ import annotations

import random

import pytest
from tests.core.queue.test_ready_queue import random_job
from tests.simulation.world import World

from holdfast.core.base.values import LeaseId
from holdfast.core.lease.messages import LeaseClosed
from holdfast.core.lease.model import LeaseStatus
from holdfast.core.queue.ready_queue import ReadyQueue, rebuild_ready_queue
from holdfast.core.state import PARTS, State
from holdfast.core.state_digest import digest
from holdfast.engine.follower import Follower
from holdfast.engine.metrics.event_metrics import DECLINED, ENDED_WITHOUT_RESULT, OTHER, EventMetrics, metrics_of
from holdfast.engine.metrics.queue_metrics import DURATION_BUCKETS_MS
from holdfast.system.histogram import Histogram

pytestmark = pytest.mark.rule("OBS-001")


def test_a_bucket_ends_at_its_bound() -> None:
    spread = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21):
        spread.add(value)
    assert (spread.counts, spread.sum) == ([2, 2, 1], 62)
    assert list(DURATION_BUCKETS_MS) == sorted(set(DURATION_BUCKETS_MS))


def test_what_waits_is_counted_by_kind_whatever_comes_and_goes() -> None:
    chance, line = random.Random(7), ReadyQueue()
    jobs = [random_job(chance) for _ in range(300)]
    for job in jobs:
        line.add_many([job])
    gone = [job for job in jobs if chance.random() < 0.5]
    for job in gone:
        line.remove_many([job])
    left = [job for job in jobs if job not in gone]
    for kind in {job.kind for job in jobs}:
        assert line.waiting[kind] == sum(job.kind is kind for job in left) > 0
    assert rebuild_ready_queue(left).waiting == line.waiting
    ready = [job for job in left if not job.not_before_ms]
    assert line.oldest_ms() == {
        kind: min(job.enqueue_ms for job in ready if job.kind is kind) for kind in {job.kind for job in ready}
    }


@pytest.mark.parametrize(
    ("reason", "is_failure", "denied_ms", "label"),
    [
        ("ACK_TIMEOUT", True, 0, "ACK_TIMEOUT"),
        ("LEASE_EXPIRED", True, 5, "LEASE_EXPIRED"),
        ("PROVIDER_JAILED", False, 0, "PROVIDER_JAILED"),
        ("what a provider says", False, 5, DECLINED),
        ("ACK_TIMEOUT", False, 5, DECLINED),
        ("what a provider says", False, 0, OTHER),
    ],
)
def test_a_lease_ended_without_result_is_counted_under_a_known_reason(
    reason: str, is_failure: bool, denied_ms: int, label: str
) -> None:
    state = State(World().policy)
    closed = LeaseClosed(LeaseId(b"l" * 32), LeaseStatus.CANCELLED, reason, 1, is_failure, 1, denied_ms)
    metrics_of(state).observe(state, [closed])
    assert metrics_of(state).counts == {("lost", label): 1}
    assert label in {*ENDED_WITHOUT_RESULT, DECLINED, OTHER}


def test_what_is_counted_is_no_fact() -> None:
    state = State(World().policy)
    before = digest(state)
    metrics_of(state).count("admitted", "AI")
    metrics_of(state).record_tick(3, 1, 5_000)
    assert digest(state) == before
    assert "observer" not in {part.path for part in PARTS}


async def test_a_start_counts_from_nothing() -> None:
    world = World()
    engine = await world.started()
    metrics_of(engine.undurable_state).count("admitted", "AI")
    again = await world.recovered()
    assert again.observer == EventMetrics()
    follower = Follower(engine.journal, world.tables, world.files, world.clock, world.policy)
    await follower.load()
    assert follower.state.observer == EventMetrics()
    await engine.stop()
