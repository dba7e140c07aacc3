"""What a million entries cost: restart, memory, pauses of the collector, and speed with as many finished ones kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.engine.contestant import bulk, charges, check, ids, new_engine, reserves, settle
from bench.engine.opened import close_engine, make_snapshot
from bench.measure import Table, at_least, at_most, interleave, ratios_of, table
from bench.stores import Store, StorePlace

BATCH = 10_000


async def fill_open(spot: StorePlace, count: int) -> None:
    """`count` open reservations, and a snapshot of them."""
    engine = await new_engine(spot)
    for _ in range(0, count, BATCH):
        check(await engine.submit_many(reserves(ids(min(BATCH, count)))))
    await close_engine(engine)
    await make_snapshot(spot)


def run_fresh_process(what: str, spot: StorePlace, snapshots: str, *more: str) -> Any:
    """What a fresh process found."""
    command = [sys.executable, "-m", "bench.engine.restart_process", what, str(spot.folder), snapshots, *more]
    root, environ = Path(__file__).parents[2], os.environ | spot.environ()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=root, env=environ)
    return json.loads(done.stdout)


async def restarts(store: Store, spot: StorePlace, rounds: int, count: int) -> list[Table]:
    """Time and memory of a start with `count` open reservations, from the journal alone and from a snapshot."""
    contestants = {
        "reading as many rows into a dictionary": ("yardstick", ""),
        "start from the journal alone": ("restart", "none"),
        "start from a snapshot": ("restart", "snapshots"),
    }
    memory: dict[str, list[float]] = {f"{name}{when}": [] for name in contestants for when in ("", ", at the peak")}

    async def turn(_: int) -> Mapping[str, float]:
        found = {}
        for name, (what, snapshots) in contestants.items():
            report = run_fresh_process(what, spot, snapshots)
            assert report["entries"] >= count
            found[name] = report["seconds"]
            memory[name].append(report["bytes"] / report["entries"])
            memory[f"{name}, at the peak"].append(report["peak_bytes"] / report["entries"])
        return found

    figures = await interleave((turn,), rounds)
    order = list(contestants)
    many = f"{count:,}".replace(",", " ")
    time = table(
        store.named("engine-restart"),
        f"Start with {many} open reservations, {store.title}",
        "s",
        figures,
        order,
        order[0],
    )
    time.goals += [at_most(name, figures[name], 3 * count / 1_000_000, " s") for name in order[1:]]
    space = table(
        store.named("engine-memory"),
        f"Memory with {many} open reservations, {store.title}",
        "bytes/entry",
        memory,
        [*memory],
        order[0],
    )
    space.goals += [at_most(name, memory[name], 1_000, " bytes") for name in order[1:]]
    return [time, space]


async def pauses(spot: StorePlace, rounds: int, count: int) -> Table:
    """How long the collector and the event loop stand still under load with `count` open reservations."""
    figures = run_fresh_process("pauses", spot, "snapshots", str(rounds))
    order = ["collector, not frozen", "collector, frozen", "event loop, not frozen", "event loop, frozen"]
    many = f"{count:,}".replace(",", " ")
    found = table("engine-pauses", f"Longest pause with {many} open reservations", "ms", figures, order, None)
    found.goals.append(at_most("longest pause of the collector, frozen", [max(figures[order[1]])], 10, " ms"))
    found.notes.append("load: 16 callers and bulks of 1000 at once; a silent event loop also waits for the other core")
    return found


async def compare_kept_history(store: Store, rounds: int, count: int) -> Table:
    """Speed of bulks of 1000 in an empty store and in one that keeps `count` finished reservations."""
    old = await new_engine(store.place("kept/old"))
    for height in range(1, count // BATCH + 1):
        chunk = ids(BATCH)
        check(await old.submit_many(reserves(chunk)))
        check(await old.submit_many(charges(chunk, height)))
        await settle(old, height)
    empty, full = "in an empty store", f"with {count:,} finished ones kept".replace(",", " ")
    pairs = 20_000

    async def in_old(number: int) -> Mapping[str, float]:
        answered, projected = await bulk(old, pairs, 1_000, height + 1 + number)
        await settle(old, height + 1 + number)
        return {full: answered, f"{full}, until in tables": projected}

    async def in_new(number: int) -> Mapping[str, float]:
        new = await new_engine(store.place(f"kept/new{number}"))
        answered, projected = await bulk(new, pairs, 1_000, 1)
        await close_engine(new)
        return {empty: answered, f"{empty}, until in tables": projected}

    figures = await interleave((in_new, in_old), rounds)
    await close_engine(old)
    order = [empty, full, f"{empty}, until in tables", f"{full}, until in tables"]
    found = table(
        store.named("engine-kept"),
        f"Bulks of 1000 with history kept, {store.title}",
        "commands/s",
        figures,
        order,
        empty,
    )
    found.goals.append(at_least("answered, kept to empty", ratios_of(figures[full], figures[empty]), 0.95))
    ratios = ratios_of(figures[order[3]], figures[order[2]])
    found.goals.append(at_least("until in tables, kept to empty", ratios, 0.95))
    return found
