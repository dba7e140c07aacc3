"""Whole jobs with real processes: jobs that do nothing, per second and end to end, and where their time goes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles

from bench.data_flow import synced_echo
from bench.data_flow.real_network import BLOCK_MS, SLOTS, JobRunTimes, RealNetwork
from bench.measure import Table, at_most, interleave, show, table
from bench.stores import Store, postgres

CALLERS = 16
AGENTS = (1, 2, 4)
BARE = "bare gRPC stream, a sync a message"
RECEIPTS = "receipts only, no agent"
STAGES: Mapping[str, tuple[str, str]] = {
    "enqueue → lease": ("enqueued", "leased"),
    "lease → ack": ("leased", "acked"),
    "ack → submitted": ("acked", "submitted"),
    "submitted → accepted": ("submitted", "accepted"),
    "accepted → readable": ("accepted", "readable"),
}
"""From one stage to the next, by the times that the events carry."""
WHOLE = "enqueue → readable, all of it"
NOTIFIED_LEASED = "asked → told that it is leased"
NOTIFIED_READABLE = "asked → told that it is readable"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, jobs, singles = (2, 160, 5) if is_quick else (5, 1_000, 40)
    began, tables = time.monotonic(), list[Table]()

    async def measure(store: Store) -> None:
        for compare, number in ((throughput, jobs), (one_at_a_time, singles)):
            for found in await compare(store, rounds, number):
                print(show(found), end="\n\n", flush=True)
                tables.append(found)

    await measure(Store(folder / "lite"))
    with postgres(folder / "pg") as server:
        if server is not None:
            await measure(server)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


# ------------------------------------------------------------------------------------------------ many at once


async def throughput(store: Store, rounds: int, number: int) -> list[Table]:
    """Jobs per second from the first request until the last result is readable; and the stages under that load."""
    networks = {agents: RealNetwork(store.place(f"jobs{agents}"), agents) for agents in (0, *AGENTS)}
    under_load: dict[int, list[JobRunTimes]] = {agents: [] for agents in AGENTS}

    async def bare(_: int) -> Mapping[str, float]:
        began = time.perf_counter()
        took = await synced_echo.exchange_messages(port, CALLERS, number)
        return {BARE: len(took) / (time.perf_counter() - began)}

    async def receipts(_: int) -> Mapping[str, float]:
        async with networks[0] as network:
            walk = await network.enqueue_only(CALLERS, number)
        return {RECEIPTS: len(walk.jobs) / walk.took_s}

    def with_agents(agents: int) -> Callable[[int], Awaitable[Mapping[str, float]]]:
        async def turn(_: int) -> Mapping[str, float]:
            async with networks[agents] as network:
                walk = await network.run_jobs(CALLERS, number)
            under_load[agents].append(walk)
            return {_named(agents): len(walk.jobs) / walk.took_s}

        return turn

    async with synced_echo.running_echo(store.folder / "echoed") as port:
        figures = await interleave([bare, receipts, *map(with_agents, AGENTS)], rounds)
    title = f"Jobs that do nothing, {CALLERS} callers, {number} a round, {store.title}"
    found = table(store.named("data-flow-jobs"), title, "jobs/s", figures, list(figures), BARE)
    found.notes += _conditions() + [_again(agents, walks) for agents, walks in under_load.items()]
    busiest = AGENTS[-1]
    where = f"Where a job's time goes under that load, {busiest} agents, {store.title}"
    stages = [_medians(walk) for walk in under_load[busiest]]
    return [found, _stage_table(store.named("data-flow-load"), where, stages, [])]


def _named(agents: int) -> str:
    return f"whole jobs, {agents} agent{'' if agents == 1 else 's'}"


def _again(agents: int, walks: Sequence[JobRunTimes]) -> str:
    again = sum(job.attempts > 1 for walk in walks for job in walk.jobs)
    return f"{_named(agents)}: {again} of {sum(len(walk.jobs) for walk in walks)} jobs needed more than one lease"


# ------------------------------------------------------------------------------------------------ one at a time


async def one_at_a_time(store: Store, rounds: int, number: int) -> list[Table]:
    """The way of a job that waits for no other, with one agent; and the round trip that a bare stream needs."""
    network, walks = RealNetwork(store.place("single"), 1), list[JobRunTimes]()

    async def bare(_: int) -> Mapping[str, float]:
        return {BARE: 1_000 * median(await synced_echo.exchange_messages(port, 1, 10 * number))}

    async def ours(_: int) -> Mapping[str, float]:
        async with network:
            walks.append(await network.one_by_one(number))
        seen = median([1_000 * (job.notified_readable_s - job.asked_s) for job in walks[-1].jobs])
        return {**_medians(walks[-1]), NOTIFIED_LEASED: median(_notified_ms(walks[-1])), NOTIFIED_READABLE: seen}

    async with synced_echo.running_echo(store.folder / "single-echoed") as port:
        figures = await interleave([bare, ours], rounds)
    title = f"Where a job's time goes, one at a time, {store.title}"
    rounds_of = [dict(zip(figures, values, strict=True)) for values in zip(*figures.values(), strict=True)]
    found = _stage_table(store.named("data-flow-single"), title, rounds_of, [BARE, NOTIFIED_LEASED, NOTIFIED_READABLE])
    leases = [ms for walk in walks for ms in _notified_ms(walk)]
    found.goals.append(at_most("asked → told that it is leased, p50", figures[NOTIFIED_LEASED], 3, " ms"))
    found.goals.append(at_most("asked → told that it is leased, p99", [quantiles(leases, n=100)[98]], 10, " ms"))
    found.notes += _conditions()
    return [found]


def _notified_ms(walk: JobRunTimes) -> list[float]:
    """From asking for a job until a follower of the events knows that somebody has it."""
    return [1_000 * (job.notified_leased_s - job.asked_s) for job in walk.jobs]


# ------------------------------------------------------------------------------------------------ stages


def _medians(walk: JobRunTimes) -> dict[str, float]:
    """The median job's time at every stage, in milliseconds."""

    def between(begin: str, end: str) -> float:
        return float(median([getattr(job, end) - getattr(job, begin) for job in walk.jobs]))

    stages = {name: between(*marks) for name, marks in STAGES.items()}
    return {WHOLE: between("enqueued", "readable"), **stages}


def _stage_table(name: str, title: str, rounds: Sequence[Mapping[str, float]], more: Sequence[str]) -> Table:
    order = [*more, WHOLE, *STAGES]
    figures = {each: [round_[each] for round_ in rounds] for each in order}
    found = table(name, title, "ms", figures, order, None)
    found.notes.append("stages: times in the events, one clock reading a batch, whole milliseconds; medians of jobs")
    return found


def _conditions() -> list[str]:
    return [f"a block every {BLOCK_MS} ms, {SLOTS} slots an agent, spools with their default flush; all on one machine"]
