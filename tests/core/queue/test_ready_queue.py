"""The line keeps its order whatever comes and goes, and is the same whether it was made at once or bit by bit."""

from __future__ import annotations

import random

import pytest
from tests.core.match.naive_match import some_job
from tests.core.match.random_states import NOW_MS
from tests.counts import counts

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import ZERO_DIGEST, AccountId, EventNo, Height, Kind, TaskId, Tier
from holdfast.core.index.sorted_keys import BLOCK_KEYS, SortedKeys
from holdfast.core.job.model import Job
from holdfast.core.policy import PriorityPolicy
from holdfast.core.queue.live.live_jobs import LiveJobs
from holdfast.core.queue.priority import sort_priority
from holdfast.core.queue.ready_queue import JobShape, ReadyQueue, rebuild_ready_queue, sort_key_of, task_id_of

pytestmark = pytest.mark.rule("PRI-003")


def random_job(chance: random.Random) -> Job:
    told = some_job(chance)
    who = (EventNo(1), TaskId(chance.randbytes(32)), Kind(told["kind"]), AccountId(chance.choice("ab")))
    fee, size, tier, at_ms = told["max_fee"], told["size_bytes"], Tier(told["tier"]), told["enqueue_ts_ms"]
    rank = sort_priority(fee, size, tier, at_ms, PriorityPolicy())
    needs = canonical(told["requirements"])
    asked = (fee, told["units"], rank, at_ms, NOW_MS)
    job = Job(*who, tier, Height(1), ZERO_DIGEST, 0, ZERO_DIGEST, size, ZERO_DIGEST, *asked, needs, "attested")
    job.not_before_ms = NOW_MS if chance.random() < 0.1 else 0
    return job


def in_order(jobs: list[Job]) -> list[TaskId]:
    ready = [job for job in jobs if not job.not_before_ms]
    return [job.id for job in sorted(ready, key=lambda job: (-job.priority, job.enqueue_ms, job.id))]


def groups(ready_queue: ReadyQueue) -> dict[object, tuple[list[bytes], list[bytes]]]:
    return {ask: (list(group.by_priority), list(group.by_age)) for ask, group in ready_queue.groups.items()}


@pytest.mark.parametrize("is_by_caller", [False, True])
def test_after_any_coming_and_going_the_ready_queue_is_the_one_rebuilt_at_once(is_by_caller: bool) -> None:
    chance = random.Random(1)
    for _ in range(counts(20, 500)):
        line, jobs = ReadyQueue(is_by_caller=is_by_caller), LiveJobs()
        for _ in range(chance.randrange(80)):
            if jobs and chance.random() < 0.4:
                job = jobs.pop(chance.choice(list(jobs)))
                line.remove_many([job])
            else:
                job = random_job(chance)
                jobs[job.id] = job
                line.add_many([job])
        again = rebuild_ready_queue(jobs.values())
        again.regroup(jobs, is_by_caller=is_by_caller, prices=set())
        assert groups(line) == groups(again)
        assert line.delayed.buckets == again.delayed.buckets
        assert list(line.in_order()) == in_order(list(jobs.values()))
        for ask, (places, ages) in groups(line).items():
            assert ages == sorted(places, key=lambda place: place[8:]), ask


@pytest.mark.rule("MAT-002")
@pytest.mark.parametrize("is_by_caller", [False, True])
def test_groups_tell_apart_which_prices_their_jobs_pay_however_prices_and_jobs_come_and_go(is_by_caller: bool) -> None:
    chance = random.Random(6)
    for _ in range(counts(20, 500)):
        line, jobs, prices = ReadyQueue(), LiveJobs(), set[int]()
        for _ in range(chance.randrange(60)):
            if jobs and chance.random() < 0.3:
                line.remove_many([jobs.pop(chance.choice(list(jobs)))])
            else:
                job = random_job(chance)
                job.max_fee = chance.randrange(1, 200)
                jobs[job.id] = job
                line.add_many([job])
            if chance.random() < 0.3:
                prices = {chance.randrange(200) for _ in range(chance.choice((1, 5, 40)))}
                line.regroup(jobs, is_by_caller=is_by_caller, prices=prices)
        line.regroup(jobs, is_by_caller=is_by_caller, prices=prices)
        again = ReadyQueue(is_by_caller=is_by_caller, prices=line.prices)
        again.add_many(jobs.values())
        assert groups(line) == groups(again)
        assert prices <= set(line.prices)
        for shape, (places, _) in groups(line).items():
            for price in prices:
                paid = {price * jobs[task_id_of(place)].units <= jobs[task_id_of(place)].max_fee for place in places}
                assert paid == {isinstance(shape, JobShape) and price <= shape.pays}


@pytest.mark.rule("MAT-002")
def test_a_new_price_that_all_fees_pay_moves_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, jobs = random.Random(7), LiveJobs()
    for _ in range(50):
        job = random_job(chance)
        job.max_fee, job.units = 1_000 + chance.randrange(1_000), 1
        jobs[job.id] = job
    line = rebuild_ready_queue(jobs.values())
    before = line.version
    monkeypatch.setattr(LiveJobs, "peek", None)
    line.regroup(jobs, is_by_caller=False, prices={0, 999, 1_000, 2_000})
    assert (line.version, {shape.pays for shape in line.groups}) == (before, {1_000})
    assert list(line.in_order()) == in_order(list(jobs.values()))


def test_a_rank_is_found_without_walking_to_it() -> None:
    chance = random.Random(2)
    jobs = [random_job(chance) for _ in range(300)]
    line, order = rebuild_ready_queue(jobs), in_order(jobs)
    for job in jobs:
        if not job.not_before_ms:
            assert line.rank(sort_key_of(job)) == order.index(job.id)


def test_a_delayed_job_is_ready_when_its_delay_is_over() -> None:
    chance = random.Random(3)
    job = random_job(chance)
    job.not_before_ms = NOW_MS + 700
    line = rebuild_ready_queue([job])
    line.promote({job.id: job}, NOW_MS + 699)
    assert list(line.in_order()) == []
    line.promote({job.id: job}, NOW_MS + 700)
    assert list(line.in_order()) == [job.id]
    line.remove_many([job])
    assert (line.groups, line.delayed.buckets) == ({}, {})


@pytest.mark.parametrize("skip", [0, 8])
def test_keys_in_blocks_are_keys_in_order(skip: int) -> None:
    chance, naive, ranks = random.Random(4), set[bytes](), SortedKeys(skip)
    for number in range(counts(8_000, 20_000)):
        if naive and chance.random() < 0.35:
            gone = chance.choice(tuple(naive)) if number % 50 == 0 else min(naive, key=lambda each: each[skip:])
            naive.discard(gone)
            assert ranks.remove(gone)
            assert not ranks.remove(gone)
        else:
            new = chance.randbytes(12) if chance.random() < 0.5 else number.to_bytes(12, "big")
            naive.add(new)
            ranks.add(new)
        if number % 400 == 0:
            expected = sorted(naive, key=lambda each: each[skip:])
            assert list(ranks) == expected
            assert len(ranks) == len(expected)
            assert all(0 < len(block) < 2 * BLOCK_KEYS for block in ranks.blocks)
            at_once = SortedKeys(skip)
            at_once.add_many(list(naive))
            assert list(at_once) == expected
            for key_ in chance.sample(expected, min(5, len(expected))):
                assert ranks.rank(key_) == expected.index(key_)
    assert ranks.rank(b"") == 0
    assert SortedKeys().rank(b"x") == 0


def test_a_group_that_is_empty_is_no_group() -> None:
    chance = random.Random(5)
    jobs = [random_job(chance) for _ in range(50)]
    line = rebuild_ready_queue(jobs)
    for job in jobs:
        line.remove_many([job])
    assert (line.groups, line.delayed.buckets) == ({}, {})
