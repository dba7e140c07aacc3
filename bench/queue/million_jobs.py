"""What a million jobs cost: a restart with as many waiting, and whole lives with as many finished ones kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.postgres.server import ROLE

from bench.engine.opened import close_engine, make_snapshot
from bench.engine.restarts import run_fresh_process
from bench.measure import Table, at_least, at_most, interleave, ratios_of, show, table
from bench.queue import contestant as ours
from bench.stores import Store, StorePlace, postgres

BATCH = 1_000
MILLION = 1_000_000
"""Jobs that wait at a restart; finished ones that are kept."""
OTHER = "held_jobs"
"""A database of its own: a snapshot keeps a whole one from being cleaned."""


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, waiting, finished, many = (1, 5_000, 2_000, 1_000) if is_quick else (5, MILLION, MILLION, 5_000)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    with postgres(folder / "pg") as server:
        for store in (Store(folder / "lite"), server):
            if store is None:
                continue
            add(*await restarts(store, min(rounds, 3), waiting))
            add(await compare_kept_jobs(store, rounds, finished, many))
            if store.server is not None:
                add(await compare_long_snapshot(store, rounds, many))
    return tables


async def fill_waiting(spot: StorePlace, count: int) -> None:
    """`count` jobs that wait, in blocks that are final, and a snapshot of them."""
    engine = await ours.open_engine_with_providers(spot, providers=0)
    for _ in range(0, count, BATCH):
        await ours.enqueue_all(engine, ours.make_enqueues(engine, min(BATCH, count)))
        await ours.seal_blocks(engine)
    await ours.finalize_and_project(engine)
    await close_engine(engine)
    await make_snapshot(spot, ours.policy_without_limits())


async def restarts(store: Store, rounds: int, count: int) -> list[Table]:
    """Time and memory of a start with `count` waiting jobs, from the journal alone and from a snapshot."""
    spot = store.place("waiting")
    await fill_waiting(spot, count)
    contestants = {"start from the journal alone": "none", "start from a snapshot": "snapshots"}
    memory: dict[str, list[float]] = {name: [] for name in contestants}

    async def turn(_: int) -> Mapping[str, float]:
        found = {}
        for name, snapshots in contestants.items():
            report = run_fresh_process("waiting", spot, snapshots)
            assert report["entries"] >= count
            found[name] = report["seconds"]
            memory[name].append(report["bytes"] / report["entries"])
        return found

    figures = await interleave((turn,), rounds)
    order, many = list(contestants), f"{count:,}".replace(",", " ")
    time = table(
        store.named("queue-restart"), f"Start with {many} waiting jobs, {store.title}", "s", figures, order, None
    )
    time.goals += [at_most(name, figures[name], 3 * count / 1_000_000, " s") for name in order]
    title = f"Memory with {many} waiting jobs, {store.title}"
    space = table(store.named("queue-memory"), title, "bytes/job", memory, order, None)
    space.goals += [at_most(name, memory[name], 600, " bytes") for name in order]
    return [time, space]


async def compare_kept_jobs(store: Store, rounds: int, count: int, many: int) -> Table:
    """Whole lives in an empty store and in one that keeps `count` finished jobs."""
    old = await ours.open_engine_with_providers(store.place("kept/old"))
    for _ in range(0, count, BATCH):
        await ours.run_lives(old, ours.make_enqueues(old, BATCH), BATCH)
    await ours.finalize_and_project(old)
    empty, full = "in an empty store", f"with {count:,} finished jobs kept".replace(",", " ")

    async def in_old(_: int) -> Mapping[str, float]:
        rate = await ours.run_lives(old, ours.make_enqueues(old, many), BATCH)
        await ours.finalize_and_project(old)
        return {full: rate}

    async def in_new(number: int) -> Mapping[str, float]:
        new = await ours.open_engine_with_providers(store.place(f"kept/new{number}"))
        rate = await ours.run_lives(new, ours.make_enqueues(new, many), BATCH)
        await close_engine(new)
        return {empty: rate}

    figures = await interleave((in_new, in_old), rounds)
    await close_engine(old)
    title = f"Whole lives with history kept, {store.title}"
    found = table(store.named("queue-kept"), title, "jobs/s", figures, [empty, full], empty)
    found.goals.append(at_least("kept to empty", ratios_of(figures[full], figures[empty]), 0.95))
    return found


async def compare_long_snapshot(store: Store, rounds: int, many: int) -> Table:
    """Whole lives on PostgreSQL beside a snapshot that is older than all of them."""
    from bench.engine.long_snapshot import open_long_snapshot  # noqa: PLC0415 - needs an extra

    assert store.server is not None
    store.server.psql(f"CREATE DATABASE {OTHER}", database="postgres")
    store.server.psql(f"GRANT CREATE ON DATABASE {OTHER} TO {ROLE}", database=OTHER)
    engines = {
        "without": await ours.open_engine_with_providers(store.place("held/without")),
        "beside a held snapshot": await ours.open_engine_with_providers(store.place("held/with", OTHER)),
    }

    async def turn(number: int) -> Mapping[str, float]:
        found = {}
        for name, engine in sorted(engines.items(), reverse=bool(number % 2)):
            found[name] = await ours.run_lives(engine, ours.make_enqueues(engine, many), BATCH)
            await ours.finalize_and_project(engine)
        return found

    async with open_long_snapshot(store.server.dsn(ROLE, OTHER)):
        figures = await interleave((turn,), rounds)
    for engine in engines.values():
        await close_engine(engine)
    order = list(engines)
    title = f"Whole lives beside a held snapshot, {store.title}"
    found = table(store.named("queue-held"), title, "jobs/s", figures, order, order[0])
    found.goals.append(at_least("held to not held", ratios_of(figures[order[1]], figures[order[0]]), 0.9))
    return found
