"""The engine on SQLite against SQL written by hand: throughput, restart, memory, pauses, history."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench import million, throughput, where
from bench.measure import Table, show


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """All comparisons, each printed as soon as it is measured."""
    rounds, scale, entries = (2, 0.2, 50_000) if is_quick else (5, 1.0, 1_000_000)
    tables: list[Table] = []

    def add(*found: Table) -> None:
        for each in found:
            print(show(each), end="\n\n", flush=True)
        tables.extend(found)

    add(await throughput.callers(folder / "callers", rounds, scale))
    add(await throughput.bulks(folder / "bulks", rounds, scale))
    add(await where.pieces(folder / "where", rounds, int(scale * 20_000)))
    await million.fill_open(folder / "open", entries)
    add(*await million.restarts(folder / "open", rounds, entries))
    add(await million.pauses(folder / "open", rounds, entries))
    if not is_quick:
        shutil.rmtree(folder / "open")
        add(await million.kept(folder / "kept", rounds, entries))
    return tables
