"""The engine on both stores against SQL written by hand: throughput, restart, memory, pauses, history, takeover."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench.engine import command_cost, restarts, takeover, throughput
from bench.measure import Table, show
from bench.stores import Store, postgres

ENTRIES = 1_000_000


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, scale = (1, 0.05) if is_quick else (5, 0.6)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    began = time.monotonic()
    await _measure(Store(folder / "lite"), rounds, scale, add, is_quick=is_quick)
    with postgres(folder / "pg") as server:
        if server is not None:
            await _measure(server, rounds, scale, add, is_quick=is_quick)
    print(f"took {time.monotonic() - began:.0f} s; {_summary(tables)}")
    return tables


async def _measure(store: Store, rounds: int, scale: float, add: Callable[..., None], *, is_quick: bool) -> None:
    add(await throughput.compare_callers(store, rounds, scale))
    add(await throughput.compare_bulks(store, rounds, scale))
    add(await command_cost.compare_command_costs(store, rounds, int(scale * 20_000)))
    count = 5_000 if is_quick else ENTRIES
    spot = store.place("open")
    await restarts.fill_open(spot, count)
    add(*await restarts.restarts(store, spot, rounds, count))
    if store.server is None:
        add(await restarts.pauses(spot, rounds, count))
    add(await takeover.compare_takeovers(store, *((1, 1_000) if is_quick else (rounds, 100_000))))
    if store.server is not None:
        from bench.engine.long_snapshot import compare_long_snapshot  # noqa: PLC0415 - needs an extra

        add(await compare_long_snapshot(store, rounds, scale))
    if not is_quick:
        add(await restarts.compare_kept_history(store, rounds, count))


def _summary(tables: list[Table]) -> str:
    missed = [f"{table.name}: {goal.says}" for table in tables for goal in table.goals if not goal.is_met]
    count = sum(len(table.goals) for table in tables)
    return "\n  ".join([f"{count - len(missed)} of {count} goals met, missed:", *missed])
