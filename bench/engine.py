"""The engine on both stores against SQL written by hand: throughput, restart, memory, pauses, history, takeover."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from bench import million, takeover, throughput, where
from bench.measure import Table, show
from bench.stores import Store, postgres

ENTRIES = 1_000_000


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, scale = (2, 0.05) if is_quick else (5, 0.6)
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
    add(await throughput.callers(store, rounds, scale))
    add(await throughput.bulks(store, rounds, scale))
    add(await where.pieces(store, rounds, int(scale * 20_000)))
    count = 20_000 if is_quick else ENTRIES
    spot = store.spot("open")
    await million.fill_open(spot, count)
    add(*await million.restarts(store, spot, rounds, count))
    if store.server is None:
        add(await million.pauses(spot, rounds, count))
    add(await takeover.takeovers(store, *((1, 10_000) if is_quick else (rounds, 100_000))))
    if store.server is not None:
        from bench.held import held  # noqa: PLC0415 - needs an extra

        add(await held(store, rounds, scale))
    if not is_quick:
        add(await million.kept(store, rounds, count))


def _summary(tables: list[Table]) -> str:
    missed = [f"{table.name}: {goal.says}" for table in tables for goal in table.goals if not goal.is_met]
    count = sum(len(table.goals) for table in tables)
    return "\n  ".join([f"{count - len(missed)} of {count} goals met, missed:", *missed])
