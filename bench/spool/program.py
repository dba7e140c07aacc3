"""The durable outbox against append loops and peers: throughput, emit latency, a hung disk, a gigabyte read."""

from __future__ import annotations

import time
from pathlib import Path

from bench.measure import Table, show
from bench.spool.append import appends
from bench.spool.emit import compare_draining, compare_latencies
from bench.spool.gigabyte import compare_gigabyte


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, seconds = (1, 0.05) if is_quick else (5, 1.0)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    began = time.monotonic()
    for per_commit in (50, 1):
        add(await appends(folder, per_commit, rounds, seconds))
    add(await compare_latencies(folder, rounds, 1.0 if is_quick else 5.0))
    add(await compare_draining(folder, rounds, 20_000 if is_quick else 300_000))
    add(*await compare_gigabyte(folder, rounds, (1 << 30) // (100 if is_quick else 1)))
    print(f"took {time.monotonic() - began:.0f} s; {_summary(tables)}")
    return tables


async def run_emit(folder: Path, *, is_quick: bool) -> list[Table]:
    """Only how long `emit` takes."""
    found = await compare_latencies(folder, 1 if is_quick else 9, 1.0 if is_quick else 5.0)
    print(show(found), end="\n\n", flush=True)
    return [found]


def _summary(tables: list[Table]) -> str:
    missed = [f"{table.name}: {goal.says}" for table in tables for goal in table.goals if not goal.is_met]
    count = sum(len(table.goals) for table in tables)
    return "\n  ".join([f"{count - len(missed)} of {count} goals met, missed:", *missed])
