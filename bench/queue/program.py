"""The queue on both stores against SQL written by hand, simple and with the same promises, and beside its peers."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping
from pathlib import Path

from bench.engine.opened import close_engine, until_in_tables
from bench.measure import Table, at_least, at_most, interleave, ratios_of, show, table
from bench.processor_time import PartTimes
from bench.queue import contestant as ours
from bench.queue.baselines.contract import BaselineQueue, drain_all, enqueue_all, run_lives
from bench.queue.peer_comparison import QueueContest
from bench.queue.projection import compare_projection
from bench.stores import Store, postgres

BATCH = 1_000
AT_ONCE = 2
"""Chunks of ours that live at the same time, as callers do: the next batch is decided while the last one is written."""
SIMPLE, PROMISED = "simple hand-written SQL", "hand-written SQL with the same promises"
ANSWERED, IN_TABLES = "Holdfast, until answered", "Holdfast, until in tables"
OWNER, JOURNAL, PROJECTOR = "Holdfast, owner", "Holdfast, journal's writer", "Holdfast, projector"
FINAL = "Holdfast, owner, making final and evicting"
SHARES = {"SQLite": 0.4, "PostgreSQL": 0.7}
"""What the order asks of whole lives until they are in tables, as a ratio to simple SQL."""


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, many, lives = (1, 1_000, 2_000) if is_quick else (5, 5_000, 20_000)
    one, leases = (64, 6) if is_quick else (1_600, 100)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    with postgres(folder / "pg") as server:
        for store in (Store(folder / "lite"), server):
            if store is None:
                continue
            add(*await compare_lives(store, rounds, lives))
            add(await compare_steps(store, rounds, many))
            add(await compare_projection(store, rounds, many, BATCH))
            add(*await QueueContest(store, one, many, leases).tables(rounds))
    return tables


async def open_baseline(store: Store, name: str, *, is_promised: bool) -> BaselineQueue:
    spot = store.place(name)
    if spot.address is None:
        from bench.queue.baselines.promised_sqlite import PromisedSqliteQueue  # noqa: PLC0415 - as below
        from bench.queue.baselines.simple_sqlite import SqliteBaselineQueue  # noqa: PLC0415

        return PromisedSqliteQueue(spot.folder) if is_promised else SqliteBaselineQueue(spot.folder)
    from bench.queue.baselines.promised_postgres import PromisedPostgresQueue  # noqa: PLC0415 - needs an extra
    from bench.queue.baselines.simple_postgres import PostgresBaselineQueue  # noqa: PLC0415

    if is_promised:
        return await PromisedPostgresQueue.open(spot.address)
    return await PostgresBaselineQueue.open(spot.address)


async def compare_lives(store: Store, rounds: int, many: int) -> list[Table]:
    """Enqueue, assign, acknowledge, complete, each step durable: rates, and processor time of the same runs."""
    simple = await open_baseline(store, "lives/simple", is_promised=False)
    promised = await open_baseline(store, "lives/promised", is_promised=True)
    engine = await ours.open_engine_with_providers(store.place("lives/ours"))
    cpu: dict[str, list[float]] = {name: [] for name in (SIMPLE, PROMISED, OWNER, JOURNAL, PROJECTOR, FINAL)}
    proofs = ours.ProofTime()
    gc.collect()
    gc.freeze()

    async def of_hand(name: str, hand: BaselineQueue) -> Mapping[str, float]:
        began = time.thread_time()
        found = {name: await run_lives(hand, _ids(many), BATCH)}
        cpu[name].append((time.thread_time() - began) / many * 1e6)
        found[f"bulk, {name}"] = await enqueue_all(hand, _ids(many), BATCH)
        found[f"drain, {name}"] = await drain_all(hand, BATCH)
        return found

    async def of_simple(_: int) -> Mapping[str, float]:
        return await of_hand(SIMPLE, simple)

    async def of_promised(_: int) -> Mapping[str, float]:
        return await of_hand(PROMISED, promised)

    async def of_ours(_: int) -> Mapping[str, float]:
        commands, used, writing = ours.make_enqueues(engine, many), PartTimes(), proofs.cpu_s
        rate = await ours.run_lives(engine, commands, BATCH, proofs, AT_ONCE)
        began = time.perf_counter()
        await until_in_tables(engine)
        late = time.perf_counter() - began
        spent = {OWNER: used.owner_s() - (proofs.cpu_s - writing), JOURNAL: used.journal_s()}
        for name, seconds in (spent | {PROJECTOR: used.projector_s()}).items():
            cpu[name].append(seconds / many * 1e6)
        final = PartTimes()
        await ours.finalize_and_project(engine)
        cpu[FINAL].append(final.owner_s() / many * 1e6)
        commands, began = ours.make_enqueues(engine, many), time.perf_counter()
        for at in range(0, many, BATCH):
            await ours.enqueue_all(engine, commands[at : at + BATCH])
        bulk = many / (time.perf_counter() - began)
        done, took = await ours.drain_all(engine)
        assert done == many
        await ours.finalize_and_project(engine)
        in_tables = many / (many / rate + late)
        return {ANSWERED: rate, IN_TABLES: in_tables, "bulk, Holdfast": bulk, "drain, Holdfast": many / took}

    figures = await interleave((of_simple, of_promised, of_ours), rounds)
    for each in (simple, promised):
        await each.close()
    await close_engine(engine)
    each_us = proofs.wall_s / (2 * many * rounds) * 1e6
    return [_rates(store, figures, each_us), _processor_times(store, cpu)]


def _rates(store: Store, figures: Mapping[str, list[float]], proof_us: float) -> Table:
    order = [SIMPLE, PROMISED, ANSWERED, IN_TABLES]
    order += [f"{what}, {who}" for what in ("bulk", "drain") for who in (SIMPLE, PROMISED, "Holdfast")]
    title = f"Whole lives of jobs, chunks of {BATCH}, {store.title}"
    made = table(store.named("queue-lives"), title, "jobs/s", figures, order, SIMPLE)
    to_simple, to_promised = (ratios_of(figures[IN_TABLES], figures[name]) for name in (SIMPLE, PROMISED))
    made.goals.append(at_least("a life until in tables, to simple SQL", to_simple, SHARES[store.title]))
    made.goals.append(at_least("a life until in tables, to SQL with the same promises", to_promised, 1.0))
    made.goals.append(at_least("bulk", figures["bulk, Holdfast"], 40_000, "/s"))
    made.notes.append(f"{AT_ONCE} chunks of ours live at the same time; SQL by hand has one writer and one chunk")
    made.notes.append("requests are encoded while the clock stands; completions are judged without signatures")
    made.notes.append(f"writing a proof, {proof_us:.1f} µs, is the provider's: the clock stands, the projector may not")
    return made


def _processor_times(store: Store, cpu: Mapping[str, list[float]]) -> Table:
    title = f"Processor time of a whole life, {store.title}"
    made = table(store.named("queue-cpu"), title, "µs/job", cpu, list(cpu), SIMPLE)
    made.goals.append(at_most("owner", cpu[OWNER], 100, " µs"))
    if any(cpu[PROJECTOR]):
        made.goals.append(at_most("projector", cpu[PROJECTOR], 45, " µs"))
    else:
        made.notes.append("the projector has neither a thread nor a process of its own here: it is in the owner's time")
    made.notes.append("owner: the thread that decides, without writing proofs; SQL: its one thread, without a server")
    made.notes.append("making final and evicting comes later, and is not in the life")
    made.notes.append("projector: the threads that are named for the tables, and all child processes")
    return made


async def compare_steps(store: Store, rounds: int, many: int) -> Table:
    """Where the processor time of a life goes, step by step."""
    engine = await ours.open_engine_with_providers(store.place("steps/ours"))
    whole = "a whole life"

    async def of_ours(_: int) -> Mapping[str, float]:
        found = await ours.measure_cpu(engine, ours.make_enqueues(engine, min(many, BATCH)))
        await ours.finalize_and_project(engine)
        return {whole: sum(found.values()), **found}

    figures = await interleave((of_ours,), rounds)
    await close_engine(engine)
    title = f"Where the owner's processor time of a job goes, {store.title}"
    made = table(store.named("queue-steps"), title, "µs/job", figures, list(figures), whole)
    made.notes.append("of the thread that decides; what it waits for, and threads that write, are not in it")
    return made


def _ids(many: int) -> list[bytes]:
    return [os.urandom(32) for _ in range(many)]
