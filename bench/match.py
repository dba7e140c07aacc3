"""Matching against the loop one would write: a tick of 256 jobs, all of 100 000 at once, and what waiting costs."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from bench.measure import Table, Turn, at_least, at_most, interleave, show, table
from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Decided
from holdfast.core.base.values import ZERO_DIGEST, AccountId, EventNo, Height, Kind, ProviderId, TaskId, Tier
from holdfast.core.job.model import Job
from holdfast.core.lease.model import lease_id
from holdfast.core.match.decide import LiveRules, match, tick_seed
from holdfast.core.match.eligibility import why_not_available, why_not_fit
from holdfast.core.match.messages import Match
from holdfast.core.match.provider_index import ProviderIndex
from holdfast.core.match.seed_shuffle import shuffle
from holdfast.core.match.tick import Tick
from holdfast.core.policy import MatchOrder, MatchPolicy, Policy
from holdfast.core.provider.model import Provider, ProviderStatus
from holdfast.core.queue.ready_queue import rebuild_ready_queue
from holdfast.core.state import State

NOW_MS: Final = 1_700_000_000_000
MODELS: Final = ("ash", "oak", "elm", "fir")
NAIVE, REBUILT = "the loop one would write", "index made anew each round"
COLD, WARM = "ours, a new seed", "ours, the seed of the tick before"


async def run(_: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, jobs, providers = (1, 5_000, 1_000) if is_quick else (5, 100_000, 10_000)
    began, tables = time.monotonic(), list[Table]()
    for measured in (
        compare_ticks(rounds, providers),
        compare_bulk(rounds, jobs, providers),
        compare_orders(rounds, providers),
        compare_waiting(rounds, 10 * jobs, providers),
        compare_fees(rounds, providers),
    ):
        found = await measured
        print(show(found), end="\n\n", flush=True)
        tables.append(found)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


# ------------------------------------------------------------------------------------------------ worlds


def world(jobs: int, providers: int, order: MatchOrder = MatchOrder.SHUFFLE, every: int = 20) -> State:
    """Four models, each provider runs three of them and has sixteen slots; fees at random."""
    chance = random.Random(1)
    state = State(Policy(match=MatchPolicy(order=order, interleave_every=every)))
    for number in range(providers):
        can = canonical({"AI": {"models": sorted(chance.sample(MODELS, 3))}})
        told = (ProviderId(chance.randbytes(32)), EventNo(number + 1), bytes(32), "p", AccountId("p"), can, "eu", 1, 16)
        provider = Provider(*told, NOW_MS + 10**10, NOW_MS, ProviderStatus.ACTIVE, 20_000)
        provider.heartbeat_ms = NOW_MS
        state.providers[provider.id] = provider
    for number in range(jobs):
        job = some_job(chance, number, MODELS[number % len(MODELS)])
        state.queue.jobs[job.id] = job
    state.queue.ready_queue = rebuild_ready_queue(state.queue.jobs.values())
    return state


def some_job(chance: random.Random, number: int, model: str) -> Job:
    who = (EventNo(number + 1), TaskId(chance.randbytes(32)), Kind.AI, AccountId("a"), Tier.FREE, Height(1))
    asked = (100, 1, chance.randrange(10**12), NOW_MS + number, NOW_MS + 10**9)
    needs = canonical({"model": model})
    return Job(*who, ZERO_DIGEST, number, ZERO_DIGEST, 10, ZERO_DIGEST, *asked, needs, "attested")


def with_beacon(state: State, number: int) -> None:
    beacon = number.to_bytes(32, "big")
    state.chain.head = msgspec.structs.replace(state.chain.head, beacon=beacon)


def naive(state: State, limit: int) -> int:
    """What the rules say, for the shuffled order and without the guard: each job asks one provider after the other."""
    policy, seed = state.policy, tick_seed(state)
    listed = {id_: each for id_, each in state.providers.items() if why_not_available(each, policy, NOW_MS) is None}
    order = [msgspec.structs.replace(listed[id_]) for id_ in shuffle(seed, listed)]
    given = 0
    for job in sorted(state.queue.jobs.values(), key=lambda job: (-job.priority, job.enqueue_ms, job.id))[:limit]:
        taker = next((each for each in order if why_not_fit(each, job, policy) is None), None)
        if taker is not None:
            lease_id(job.id, taker.id, job.attempts, seed)
            taker.leases += 1
            given += 1
    return given


def settled(*states: State) -> None:
    """As a node does after its start: what was loaded is not looked through by the collector again."""
    for state in states:
        decide_tick(state)
    gc.collect()
    gc.freeze()


def decide_tick(state: State) -> int:
    state.provider_index.idle_fingerprint = None
    found = match(state, Match(), NOW_MS)
    assert isinstance(found, Decided)
    return len(found.events)


def timed(work: Callable[[], int], expected: int) -> float:
    """In processor time: nothing here waits, and what other programs take does not count."""
    began = time.process_time()
    assert work() == expected
    return time.process_time() - began


# ------------------------------------------------------------------------------------------------ comparisons


async def compare_ticks(rounds: int, providers: int) -> Table:
    """256 jobs, with lease ids and events."""
    state = world(256, providers)
    settled(state)

    async def by_hand(_: int) -> Mapping[str, float]:
        return {NAIVE: 1_000 * timed(lambda: naive(state, 256), 256)}

    async def rebuilt(number: int) -> Mapping[str, float]:
        with_beacon(state, number)
        state.provider_index = ProviderIndex()
        return {REBUILT: 1_000 * timed(lambda: decide_tick(state), 256)}

    async def cold(number: int) -> Mapping[str, float]:
        with_beacon(state, 1_000 + number)
        return {COLD: 1_000 * timed(lambda: decide_tick(state), 256)}

    async def warm(_: int) -> Mapping[str, float]:
        decide_tick(state)
        return {WARM: 1_000 * timed(lambda: decide_tick(state), 256)}

    figures = await interleave([by_hand, rebuilt, cold, warm], rounds)
    made_of = table("match-tick", f"A tick: 256 jobs × {providers} providers", "ms", figures, list(figures), NAIVE)
    made_of.goals.append(at_most("a tick with shuffle and ids", figures[COLD], 10, " ms"))
    made_of.notes.append("the loop has no starvation guard and no quotas; ours has both")
    return made_of


async def compare_bulk(rounds: int, jobs: int, providers: int) -> Table:
    """The whole queue in one go, the decision alone."""
    guarded, plain = world(jobs, providers), world(jobs, providers, every=0)
    few = min(jobs, 1_000)
    settled(guarded, plain)

    def all_of(state: State) -> int:
        every = state.policy.match.interleave_every
        tick = Tick(
            state.queue.ready_queue,
            state.provider_index,
            LiveRules(state, NOW_MS),
            state.policy.match.order,
            tick_seed(state),
        )
        tick.run(0, every)
        return len(tick.sort_keys)

    async def by_hand(_: int) -> Mapping[str, float]:
        return {NAIVE: few / timed(lambda: naive(plain, few), few)}

    def ours(name: str, state: State) -> Turn:
        async def turn(_: int) -> Mapping[str, float]:
            return {name: jobs / timed(lambda: all_of(state), jobs)}

        return turn

    names = ("ours, every 20th the oldest", "ours, without the guard")
    figures = await interleave([by_hand, ours(names[0], guarded), ours(names[1], plain)], rounds)
    title = f"{jobs} jobs × {providers} providers at once, decision only"
    made_of = table("match-bulk", title, "jobs/s", figures, list(figures), NAIVE)
    made_of.goals += [at_least(name, figures[name], 1_000_000, " jobs/s") for name in names]
    made_of.notes.append(f"the loop gives the first {few} jobs only: it slows down as providers fill up")
    return made_of


async def compare_orders(rounds: int, providers: int) -> Table:
    """The three orders, 256 jobs each, with a new seed."""
    states = {order: world(256, providers, order) for order in (MatchOrder.SHUFFLE, MatchOrder.SPREAD)}
    states[MatchOrder.SCORED] = world(256, providers // 10, MatchOrder.SCORED)
    settled(*states.values())

    def of(order: MatchOrder) -> Turn:
        async def turn(number: int) -> Mapping[str, float]:
            with_beacon(states[order], 2_000 + number)
            return {str(order): 1_000 * timed(lambda: decide_tick(states[order]), 256)}

        return turn

    figures = await interleave([of(order) for order in states], rounds)
    made_of = table(
        "match-orders", f"A tick of each order, {providers} providers", "ms", figures, list(figures), "shuffle"
    )
    made_of.notes.append(
        f"scored with {providers // 10} providers of equal score: each pair is hashed, as the rule says"
    )
    return made_of


async def compare_fees(rounds: int, providers: int) -> Table:
    """A tick of 256 of 10 000 jobs: with one fee, with as many fees as jobs, and with a hundred prices to pay."""
    equal, distinct, prices = "one fee", "10 000 fees", "10 000 fees, 100 prices"
    states = {name: world(10_000, providers) for name in (equal, distinct, prices)}
    for name in (distinct, prices):
        for number, job in enumerate(states[name].queue.jobs.values()):
            job.max_fee = 100 + number
    for number, provider in enumerate(states[prices].providers.values()):
        provider.price = 100 * (number % 100)
    for state in states.values():
        state.queue.ready_queue = rebuild_ready_queue(state.queue.jobs.values())
    settled(*states.values())

    def of(name: str) -> Turn:
        async def turn(number: int) -> Mapping[str, float]:
            with_beacon(states[name], 3_000 + number)
            return {name: 1_000 * timed(lambda: decide_tick(states[name]), 256)}

        return turn

    figures = await interleave([of(name) for name in states], rounds)
    title = f"A tick with as many fees as jobs, {providers} providers"
    made_of = table("match-fees", title, "ms", figures, list(figures), equal)
    made_of.goals.append(at_most("a tick with 10 000 fees", figures[distinct], 10, " ms"))
    return made_of


async def compare_waiting(rounds: int, jobs: int, providers: int) -> Table:
    """What a deep queue costs: its line made at once, one more job, one slot that is freed, nothing that fits."""
    state = world(jobs, providers)
    state.queue.ready_queue.is_by_caller = False
    for each in state.providers.values():
        each.leases = 16
        state.changed_providers.add(each.id)
    settled(state)
    fresh = iter([some_job(random.Random(n), 10**9 + n, MODELS[0]) for n in range(1_000 * rounds)])
    busy = list(state.providers.values())

    async def line(_: int) -> Mapping[str, float]:
        return {
            "the line made at once": 1_000 * timed(lambda: rebuild_ready_queue(state.queue.jobs.values()).version, jobs)
        }

    async def one_more(_: int) -> Mapping[str, float]:
        some = [next(fresh) for _ in range(1_000)]
        return {"one job more": timed(lambda: _added(state, some), 1_000)}

    async def freed(number: int) -> Mapping[str, float]:
        each = busy[number]
        each.leases = 15
        state.changed_providers.add(each.id)
        took = timed(lambda: decide_tick(state), 1)
        each.leases = 16
        state.changed_providers.add(each.id)
        decide_tick(state)
        return {"one slot freed": 1_000 * took}

    figures = await interleave([line, one_more, freed, _unfit(jobs, providers)], rounds)
    return table(
        "match-waiting", f"With {jobs} jobs waiting for {providers} providers", "ms", figures, list(figures), None
    )


def _added(state: State, jobs: list[Job]) -> int:
    for job in jobs:
        state.queue.ready_queue.add_many([job])
    return len(jobs)


def _unfit(jobs: int, providers: int) -> Turn:
    """All providers free, and no provider has what the jobs ask for."""
    state = world(0, providers)
    waiting = _strange(jobs)
    state.queue.jobs.update((job.id, job) for job in waiting)
    state.queue.ready_queue = rebuild_ready_queue(waiting)
    decide_tick(state)

    async def turn(_: int) -> Mapping[str, float]:
        return {"a tick in which nothing fits": 1_000 * timed(lambda: decide_tick(state), 0)}

    return turn


def _strange(jobs: int) -> list[Job]:
    chance = random.Random(2)
    return [some_job(chance, number, f"unknown {number % 100}") for number in range(jobs // 10)]
