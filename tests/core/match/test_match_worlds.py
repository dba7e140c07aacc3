"""Matching equals a naive reading of the rules, in random worlds and after random histories; the index never lies."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from tests.core.match import naive_match
from tests.core.match.random_states import NOW_MS, random_state, world_of
from tests.counts import counts

from holdfast.cli.compute import evaluate
from holdfast.core import state_machine
from holdfast.core.base.event import Decided
from holdfast.core.index.sorted_keys import SortedKeys
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.match.eligibility import why_not_eligible
from holdfast.core.match.merge import BatchedMerge
from holdfast.core.match.messages import Match
from holdfast.core.policy import MatchOrder
from holdfast.core.state import State

PARTS = 10
"""So that several processes share the work."""
WORLDS = counts(10_200, 200_000)
VECTORS: list[dict[str, Any]] = json.loads(naive_match.VECTORS.read_text("utf-8"))


def given(state: State, now_ms: int) -> list[tuple[bytes, bytes]]:
    decided = state_machine.decide(state, Match(), now_ms)
    assert isinstance(decided, Decided)
    return [(event.job_id, event.provider_id) for event in decided.events if isinstance(event, JobAssigned)]


@pytest.mark.rule("PRV-005", "MAT-001", "MAT-002", "MAT-003", "MAT-004", "MAT-005", "PRI-003", "QUO-001")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("order", list(MatchOrder))
def test_a_tick_in_any_world_equals_a_naive_reading_of_the_rules(order: MatchOrder, part: int) -> None:
    chance = random.Random(f"{order} {part}")
    total = 0
    for _ in range(WORLDS // (PARTS * len(MatchOrder))):
        state = random_state(chance, order)
        world = world_of(state, NOW_MS)
        expected = naive_match.match(world)
        assert given(state, NOW_MS) == expected, world
        total += len(expected)
    assert total > WORLDS // 100, "worlds in which nothing happens prove nothing"


@pytest.mark.rule("MAT-003", "MAT-005")
@pytest.mark.parametrize("order", list(MatchOrder))
def test_so_it_is_in_worlds_too_large_to_be_looked_at_in_one_go(order: MatchOrder) -> None:
    chance = random.Random(f"large {order}")
    for _ in range(counts(10, 200)):
        state = random_state(chance, order, jobs=chance.choice((20, 250)), providers=60)
        assert given(state, NOW_MS) == naive_match.match(world_of(state, NOW_MS))


class _Group:
    def __init__(self) -> None:
        self.is_done = False


def _sorted_keys(keys: list[bytes]) -> SortedKeys:
    made = SortedKeys()
    made.add_many(list(keys))
    return made


@pytest.mark.rule("PRI-003")
def test_jobs_of_many_groups_are_merged_in_order_and_those_of_a_group_that_is_done_are_left_out() -> None:
    chance = random.Random(13)
    for _ in range(counts(60, 1_000)):
        sizes = [chance.choice((1, 7, 8, 9, 40, 600, 1_500)) for _ in range(chance.randrange(1, 6))]
        keys = [[chance.randbytes(chance.choice((2, 6))) for _ in range(size)] for size in sizes]
        keys = [sorted(set(some) - set().union(*keys[:at])) for at, some in enumerate(keys)]
        groups = [(_sorted_keys(some), _Group()) for some in keys if some]
        merged, seen, stopped = BatchedMerge(groups), list[bytes](), set[bytes]()
        for lot in merged:
            assert lot == sorted(lot)
            seen += [key for key in lot if not merged.owner[key].is_done]
            if chance.random() < 0.1:
                ranks, whose = chance.choice(groups)
                whose.is_done = True
                stopped |= {key for key in ranks if key > lot[-1]}
        assert seen == sorted({key for ranks, _ in groups for key in ranks} - stopped)


@pytest.mark.rule("PRV-005", "MAT-002", "MAT-006")
def test_the_filter_that_refuses_is_named_where_a_naive_reading_refuses_and_only_there() -> None:
    chance, said = random.Random(7), set[str]()
    for _ in range(counts(300, 20_000)):
        state = random_state(chance, "shuffle")
        world = world_of(state, NOW_MS)
        jobs = {job["job_id"]: job for job in world["jobs"]}
        for told in world["providers"]:
            for id_, job in jobs.items():
                is_fit = naive_match.is_listed(told, world) and naive_match.fits(told, job, world, [])
                why = why_not_eligible(state, state.providers[told["provider_id"]], state.queue.jobs[id_], NOW_MS)
                assert (why is None) == is_fit, (why, told, job)
                said |= {why.split()[0]} if why else set()
    assert len(said) >= 16, f"not every filter had its turn: {sorted(said)}"


@pytest.mark.rule("MAT-003", "MAT-005")
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["about"] for vector in VECTORS])
def test_every_world_of_the_vectors_is_matched_as_it_says(vector: dict[str, Any]) -> None:
    assert naive_match.answer(**vector["input"]) == vector["output"]
    assert evaluate("match", json.dumps(vector["input"]).encode()) == vector["output"]


@pytest.mark.rule("MAT-003", "CMP-001")
def test_the_order_in_which_a_world_is_described_does_not_matter() -> None:
    chance = random.Random(3)
    for vector in VECTORS:
        asked = dict(vector["input"])
        asked["jobs"] = chance.sample(asked["jobs"], len(asked["jobs"]))
        asked["providers"] = chance.sample(asked["providers"], len(asked["providers"]))
        assert evaluate("match", json.dumps(asked).encode()) == vector["output"]


def test_what_is_not_decided_for_good_can_be_decided_again() -> None:
    chance = random.Random(11)
    for _ in range(200):
        state = random_state(chance, "shuffle")
        first = given(state, NOW_MS)
        assert given(state, NOW_MS) == first, "nothing was applied: the same tick gives the same"
        state.policy = msgspec.structs.replace(state.policy)
        assert given(state, NOW_MS) == first
