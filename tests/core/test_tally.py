"""What is counted beside the facts: by rule and not by what somebody says, from the times of events, never digested."""

from __future__ import annotations

import random

import pytest
from tests.core.test_line import a_job
from tests.simulated.world import World

from holdfast.core.counting import COUNTED, DECLINED, LOST, OTHER
from holdfast.core.lease.acts import LeaseClosed
from holdfast.core.lease.record import LeaseStatus
from holdfast.core.queue.line import Line, made
from holdfast.core.state import PARTS, State, digest
from holdfast.core.tally import MILLISECONDS, Spread, Tally
from holdfast.core.values import Kind, LeaseId
from holdfast.engine.follower import Follower

pytestmark = pytest.mark.rule("OBS-001")


def test_a_bucket_ends_at_its_mark() -> None:
    spread = Spread((10, 20))
    for value in (0, 10, 11, 20, 21):
        spread.add(value)
    assert (spread.counts, spread.sum) == ([2, 2, 1], 62)
    assert list(MILLISECONDS) == sorted(set(MILLISECONDS))


def test_what_waits_is_counted_by_kind_whatever_comes_and_goes() -> None:
    chance, line = random.Random(7), Line()
    jobs = [a_job(chance) for _ in range(300)]
    for job in jobs:
        line.add(job)
    gone = [job for job in jobs if chance.random() < 0.5]
    for job in gone:
        line.remove(job)
    left = [job for job in jobs if job not in gone]
    for kind in Kind:
        assert line.waiting[kind] == sum(job.kind is kind for job in left) > 0
    assert made(left).waiting == line.waiting
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
def test_a_lost_lease_is_counted_under_a_name_of_the_rules(
    reason: str, is_failure: bool, denied_ms: int, label: str
) -> None:
    state = State(World().policy)
    closed = LeaseClosed(LeaseId(b"l" * 32), LeaseStatus.CANCELLED, reason, 1, is_failure, 1, denied_ms)
    COUNTED[LeaseClosed](state, closed)
    assert state.tally.counts == {("lost", label): 1}
    assert label in {*LOST, DECLINED, OTHER}


def test_what_is_counted_is_no_fact() -> None:
    state = State(World().policy)
    before = digest(state)
    state.tally.count("admitted", "AI")
    state.tally.tick(3, 1, 5_000)
    assert digest(state) == before
    assert "tally" not in {part.name for part in PARTS}


async def test_a_start_counts_from_nothing() -> None:
    world = World()
    engine = await world.started()
    engine.state.tally.count("admitted", "AI")
    again = await world.recovered()
    assert again.tally == Tally()
    follower = Follower(engine.journal, world.tables, world.files, world.clock, world.policy)
    await follower.load()
    assert follower.state.tally == Tally()
    await engine.stop()
