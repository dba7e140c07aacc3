"""The queue on both stores against SQL written by hand: whole lives, enqueueing, and how soon a job is leased."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles

from bench import queue_ours as ours
from bench.measure import Table, at_least, at_most, interleave, ratios_of, show, table
from bench.ours import close_engine
from bench.queue_contest import contest
from bench.queue_hand import HandQueue, SqliteQueue, drained, enqueued, lived
from bench.stores import Store, postgres
from holdfast.duties.dispatcher import Dispatcher
from holdfast.engine.loop import Engine

LOT = 1_000
CALLERS = (1, 16, 64)
HAND = "hand-written SQL, lots of 1000"
OURS = "Holdfast, lots of 1000"
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
            for measured in (lives, steps, receipts, leased, contest):
                found = await measured(store, rounds, many)
                add(found)
    return tables


async def by_hand(store: Store, name: str) -> HandQueue:
    spot = store.spot(name)
    if spot.address is None:
        return SqliteQueue(spot.folder)
    from bench.queue_hand import PostgresQueue  # noqa: PLC0415 - needs an extra

    return await PostgresQueue.open(spot.address)


async def lives(store: Store, rounds: int, many: int) -> Table:
    """Enqueue, assign, acknowledge, complete: with leases, events, money and tombstone, each step durable."""
    hand, engine = await by_hand(store, "lives/hand"), await ours.opened(store.spot("lives/ours"))
    gc.collect()
    gc.freeze()
    rows = {"a life": (HAND, OURS), "bulk": ("bulk, by hand", "bulk"), "drain": ("drain, by hand", "drain")}

    async def of_hand(_: int) -> Mapping[str, float]:
        found = {rows["a life"][0]: await lived(hand, _ids(many), LOT)}
        found[rows["bulk"][0]] = await enqueued(hand, _ids(many), LOT)
        found[rows["drain"][0]] = await drained(hand, LOT)
        return found

    async def of_ours(_: int) -> Mapping[str, float]:
        found = {rows["a life"][1]: await ours.lived(engine, ours.asked(engine, many), LOT)}
        await ours.rested(engine)
        commands, began = ours.asked(engine, many), time.perf_counter()
        for at in range(0, many, LOT):
            await ours.enqueued(engine, commands[at : at + LOT])
        found[rows["bulk"][1]] = many / (time.perf_counter() - began)
        done, took = await ours.drained(engine)
        assert done == many
        found[rows["drain"][1]] = many / took
        await ours.rested(engine)
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


async def steps(store: Store, rounds: int, many: int) -> Table:
    """Where the processor time of a life goes; SQL by hand shares it with SQLite, or leaves it to the server."""
    hand, engine = await by_hand(store, "steps/hand"), await ours.opened(store.spot("steps/ours"))
    whole, by_them = "a whole life", "a whole life by hand, without the server's part"

    async def of_hand(_: int) -> Mapping[str, float]:
        began = time.thread_time()
        await lived(hand, _ids(many), LOT)
        return {by_them: (time.thread_time() - began) / many * 1e6}

    async def of_ours(_: int) -> Mapping[str, float]:
        found = await ours.spent(engine, ours.asked(engine, min(many, LOT)))
        await ours.rested(engine)
        return {whole: sum(found.values()), **found}

    figures = await interleave((of_hand, of_ours), rounds)
    await close_engine(engine)
    await hand.close()
    title = f"Where a job's processor time goes, {store.title}"
    order = [by_them, *(name for name in figures if name != by_them)]
    found = table(store.named("queue-steps"), title, "µs/job", figures, order, by_them)
    found.notes.append("of the thread that decides; what it waits for, and threads that write, are not in it")
    return found


async def receipts(store: Store, rounds: int, many: int) -> Table:
    """Single enqueues of 1, 16 and 64 requesters at a time, against lots of as many without requesters."""
    engine = await ours.opened(store.spot("receipts"))
    waits: dict[int, list[float]] = {callers: [] for callers in CALLERS}

    async def of_callers(_: int) -> Mapping[str, float]:
        found = {}
        for callers in CALLERS:
            commands = ours.asked(engine, _share(many, callers))
            found[f"{callers} requesters"], took = await ours.one_by_one(engine, commands, callers)
            waits[callers] += took
            await _let_go(engine)
        return found

    async def of_lots(_: int) -> Mapping[str, float]:
        found = {}
        for callers in CALLERS:
            commands, began = ours.asked(engine, _share(many, callers)), time.perf_counter()
            for at in range(0, len(commands), callers):
                await ours.enqueued(engine, commands[at : at + callers])
            found[f"lots of {callers}"] = len(commands) / (time.perf_counter() - began)
            await _let_go(engine)
        return found

    figures = await interleave((of_lots, of_callers), rounds)
    await close_engine(engine)
    order = [name for callers in CALLERS for name in (f"lots of {callers}", f"{callers} requesters")]
    title = f"Receipts for jobs asked one by one, {store.title}"
    found = table(store.named("queue-receipts"), title, "jobs/s", figures, order, order[0])
    for callers, share in ((16, 0.85), (64, 0.7)):
        ratios = ratios_of(figures[f"{callers} requesters"], figures[f"lots of {callers}"])
        found.goals.append(at_least(f"{callers} requesters to lots of {callers}", ratios, share))
    for callers, took in waits.items():
        p99 = quantiles(took, n=100)[98]
        found.notes.append(f"{callers} requesters: receipt p50 {median(took) * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")
    return found


def _share(many: int, callers: int) -> int:
    """One requester at a time is slow: as many jobs as take about as long."""
    return max(callers, many * min(callers, 16) // 16)


async def _let_go(engine: Engine) -> None:
    await ours.drained(engine)
    await ours.rested(engine)


def _ids(many: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(many)]


async def leased(store: Store, rounds: int, many: int) -> Table:
    """From asking until the lease is durable, with a dispatcher that is woken by the job."""
    engine = await ours.opened(store.spot("leased"))
    dispatching = asyncio.create_task(Dispatcher(engine).run())
    waits: list[float] = []

    async def turn(_: int) -> Mapping[str, float]:
        mine: list[float] = []
        for command in ours.asked(engine, max(200, many // 20)):
            began = time.perf_counter()
            (id_,) = await ours.enqueued(engine, [command])
            while id_ not in engine.state.leases.by_job:  # noqa: ASYNC110 - what is waited for is a look at memory
                await asyncio.sleep(0)
            await engine.ask(lambda _: None)
            mine.append((time.perf_counter() - began) * 1e3)
        waits.extend(mine)
        await ours.finished(engine, list(engine.state.leases.by_id.values()))
        await ours.rested(engine)
        return {"p50": median(mine), "p99": quantiles(mine, n=100)[98]}

    figures = await interleave((turn,), rounds)
    dispatching.cancel()
    await asyncio.gather(dispatching, return_exceptions=True)
    await close_engine(engine)
    title = f"From asking until leased, one at a time, {store.title}"
    found = table(store.named("queue-leased"), title, "ms", figures, ["p50", "p99"], None)
    found.goals += [at_most("p50", figures["p50"], 3, " ms"), at_most("p99", figures["p99"], 10, " ms")]
    return found
