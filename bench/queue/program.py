"""The queue on both stores against SQL written by hand: whole lives, enqueueing, and how soon a job is leased."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from bench.engine.contestant import close_engine
from bench.measure import Table, at_least, at_most, interleave, ratios_of, show, table
from bench.queue import contestant as ours
from bench.queue.baselines import BaselineQueue, SqliteBaselineQueue, drain_all, enqueue_all, run_lives
from bench.queue.peer_comparison import compare_peers
from bench.stores import Store, postgres
from holdfast.engine.loop import Engine
from holdfast.engine.queries.node import Ping
from holdfast.workers.dispatcher import Dispatcher

BATCH = 1_000
CALLERS = (1, 16, 64)
HAND = "hand-written SQL, chunks of 1000"
OURS = "Holdfast, chunks of 1000"
SHARES = {"SQLite": 1.8, "PostgreSQL": 1.5}
"""What GOALS asks of whole lives, as a ratio to SQL written by hand."""


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, many = (2, 1_000) if is_quick else (5, 5_000)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    with postgres(folder / "pg") as server:
        for store in (Store(folder / "lite"), server):
            if store is None:
                continue
            for measured in (compare_lives, compare_steps, compare_receipts, compare_time_to_lease, compare_peers):
                found = await measured(store, rounds, many)
                add(found)
    return tables


async def open_baseline(store: Store, name: str) -> BaselineQueue:
    spot = store.place(name)
    if spot.address is None:
        return SqliteBaselineQueue(spot.folder)
    from bench.queue.baselines import PostgresBaselineQueue  # noqa: PLC0415 - needs an extra

    return await PostgresBaselineQueue.open(spot.address)


async def compare_lives(store: Store, rounds: int, many: int) -> Table:
    """Enqueue, assign, acknowledge, complete: with leases, events, money and tombstone, each step durable."""
    hand, engine = (
        await open_baseline(store, "lives/hand"),
        await ours.open_engine_with_providers(store.place("lives/ours")),
    )
    gc.collect()
    gc.freeze()
    rows = {"a life": (HAND, OURS), "bulk": ("bulk, by hand", "bulk"), "drain": ("drain, by hand", "drain")}

    async def of_hand(_: int) -> Mapping[str, float]:
        found = {rows["a life"][0]: await run_lives(hand, _ids(many), BATCH)}
        found[rows["bulk"][0]] = await enqueue_all(hand, _ids(many), BATCH)
        found[rows["drain"][0]] = await drain_all(hand, BATCH)
        return found

    async def of_ours(_: int) -> Mapping[str, float]:
        found = {rows["a life"][1]: await ours.run_lives(engine, ours.make_enqueues(engine, many), BATCH)}
        await ours.finalize_and_project(engine)
        commands, began = ours.make_enqueues(engine, many), time.perf_counter()
        for at in range(0, many, BATCH):
            await ours.enqueue_all(engine, commands[at : at + BATCH])
        found[rows["bulk"][1]] = many / (time.perf_counter() - began)
        done, took = await ours.drain_all(engine)
        assert done == many
        found[rows["drain"][1]] = many / took
        await ours.finalize_and_project(engine)
        return found

    figures = await interleave((of_hand, of_ours), rounds)
    await close_engine(engine)
    await hand.close()
    order = [name for pair in rows.values() for name in pair]
    title = f"Whole lives of jobs, {store.title}"
    found = table(store.named("queue-lives"), title, "jobs/s", figures, order, HAND)
    found.goals.append(at_least("a life", ratios_of(figures[OURS], figures[HAND]), SHARES[store.title]))
    found.goals.append(at_least("bulk", figures["bulk"], 100_000, "/s"))
    found.notes.append("requests and proofs are encoded while the clock stands, proofs are judged without signatures")
    return found


async def compare_steps(store: Store, rounds: int, many: int) -> Table:
    """Where the processor time of a life goes; SQL by hand shares it with SQLite, or leaves it to the server."""
    hand, engine = (
        await open_baseline(store, "steps/hand"),
        await ours.open_engine_with_providers(store.place("steps/ours")),
    )
    whole, by_them = "a whole life", "a whole life by hand, without the server's part"

    async def of_hand(_: int) -> Mapping[str, float]:
        began = time.thread_time()
        await run_lives(hand, _ids(many), BATCH)
        return {by_them: (time.thread_time() - began) / many * 1e6}

    async def of_ours(_: int) -> Mapping[str, float]:
        found = await ours.measure_cpu(engine, ours.make_enqueues(engine, min(many, BATCH)))
        await ours.finalize_and_project(engine)
        return {whole: sum(found.values()), **found}

    figures = await interleave((of_hand, of_ours), rounds)
    await close_engine(engine)
    await hand.close()
    title = f"Where a job's processor time goes, {store.title}"
    order = [by_them, *(name for name in figures if name != by_them)]
    found = table(store.named("queue-steps"), title, "µs/job", figures, order, by_them)
    found.notes.append("of the thread that decides; what it waits for, and threads that write, are not in it")
    return found


async def compare_receipts(store: Store, rounds: int, many: int) -> Table:
    """Single enqueues of 1, 16 and 64 requesters at a time, against chunks of as many without requesters."""
    engine = await ours.open_engine_with_providers(store.place("receipts"))
    waits: dict[int, list[float]] = {callers: [] for callers in CALLERS}

    async def of_callers(_: int) -> Mapping[str, float]:
        found = {}
        for callers in CALLERS:
            commands = ours.make_enqueues(engine, _share(many, callers))
            found[f"{callers} requesters"], took = await ours.one_by_one(engine, commands, callers)
            waits[callers] += took
            await _drain_and_finalize(engine)
        return found

    async def of_chunks(_: int) -> Mapping[str, float]:
        found = {}
        for callers in CALLERS:
            commands, began = ours.make_enqueues(engine, _share(many, callers)), time.perf_counter()
            for at in range(0, len(commands), callers):
                await ours.enqueue_all(engine, commands[at : at + callers])
            found[f"chunks of {callers}"] = len(commands) / (time.perf_counter() - began)
            await _drain_and_finalize(engine)
        return found

    figures = await interleave((of_chunks, of_callers), rounds)
    await close_engine(engine)
    order = [name for callers in CALLERS for name in (f"chunks of {callers}", f"{callers} requesters")]
    title = f"Receipts for jobs asked one by one, {store.title}"
    found = table(store.named("queue-receipts"), title, "jobs/s", figures, order, order[0])
    for callers, share in ((16, 0.85), (64, 0.7)):
        ratios = ratios_of(figures[f"{callers} requesters"], figures[f"chunks of {callers}"])
        found.goals.append(at_least(f"{callers} requesters to chunks of {callers}", ratios, share))
    for callers, took in waits.items():
        p99 = quantiles(took, n=100)[98]
        found.notes.append(f"{callers} requesters: receipt p50 {median(took) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
    return found


def _share(many: int, callers: int) -> int:
    """One requester at a time is slow: as many jobs as take about as long."""
    return max(callers, many * min(callers, 16) // 16)


async def _drain_and_finalize(engine: Engine) -> None:
    await ours.drain_all(engine)
    await ours.finalize_and_project(engine)


def _ids(many: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(many)]


async def compare_time_to_lease(store: Store, rounds: int, many: int) -> Table:
    """From asking until the lease is durable, with a dispatcher that is woken by the job."""
    engine = await ours.open_engine_with_providers(store.place("leased"))
    dispatching = asyncio.create_task(Dispatcher(engine).run())
    waits: list[float] = []

    async def turn(_: int) -> Mapping[str, float]:
        mine: list[float] = []
        for command in ours.make_enqueues(engine, max(200, many // 20)):
            began = time.perf_counter()
            (id_,) = await ours.enqueue_all(engine, [command])
            while id_ not in engine.undurable_state.leases.by_job:  # noqa: ASYNC110 - what is waited for is a look at memory
                await asyncio.sleep(0)
            await engine.query_durable(Ping())
            mine.append((time.perf_counter() - began) * 1e3)
        waits.extend(mine)
        await ours.finish_leases(engine, list(engine.undurable_state.leases.by_id.values()))
        await ours.finalize_and_project(engine)
        return {"p50": median(mine), "p99": quantiles(mine, n=100)[98]}

    figures = await interleave((turn,), rounds)
    dispatching.cancel()
    await asyncio.gather(dispatching, return_exceptions=True)
    await close_engine(engine)
    title = f"From asking until leased, one at a time, {store.title}"
    found = table(store.named("queue-leased"), title, "ms", figures, ["p50", "p99"], None)
    found.goals += [at_most("p50", figures["p50"], 3, " ms"), at_most("p99", figures["p99"], 10, " ms")]
    return found
