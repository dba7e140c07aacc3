"""`python -m bench [engine …] [--quick]`: runs the programs, saves their tables and draws them for the documents."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
from pathlib import Path

from bench import chain, gateway, match, measure, plot, work_folder
from bench.api import program as api
from bench.data_flow import idle_providers
from bench.data_flow import program as data_flow
from bench.engine import program as engine
from bench.queue import million_jobs
from bench.queue import program as queue
from bench.results import program as results
from bench.spool import program as spool
from bench.stream import program as stream

PROGRAMS = {
    "engine": engine.run,
    "chain": chain.run,
    "api": api.run,
    "way": data_flow.run,
    "queue": queue.run,
    "queue-million": million_jobs.run,
    "match": match.run,
    "results": results.run,
    "spool": spool.run,
    "stream": stream.run,
    "idle": idle_providers.run,
    "gateway": gateway.run,
}
PLOTS = Path(__file__).parent.parent / "docs" / "plots"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("programs", nargs="*", help=f"which of {', '.join(PROGRAMS)}; all if none is named")
    arguments.add_argument("--quick", action="store_true", help="few rounds of little work: shows only that it works")
    arguments.add_argument("--folder", type=Path, help="where to put the measured files, default bench/out")
    arguments.add_argument("--draw", action="store_true", help="only draw again what was saved")
    given = arguments.parse_args()
    for name in given.programs or PROGRAMS:
        if name not in PROGRAMS:
            arguments.error(f"no program {name}: there is {', '.join(PROGRAMS)}")
        _run(name, given.folder, is_quick=given.quick, is_drawn_only=given.draw)


def _run(name: str, folder: Path | None, *, is_quick: bool, is_drawn_only: bool) -> None:
    saved = work_folder.OUT / (f"{name}-quick.json" if is_quick else f"{name}.json")
    if not is_drawn_only:
        with work_folder.work_folder(folder) as shop:
            print(
                f"{name} on Python {platform.python_version()}, {os.cpu_count()} cores\n{work_folder.describe(shop)}\n"
            )
            measure.save(saved, asyncio.run(PROGRAMS[name](shop, is_quick=is_quick)))
    plots = work_folder.OUT / "quick" if is_quick else PLOTS
    for table in measure.load(saved):
        plot.draw(table, plots / f"{table.name}.svg")
    print(f"saved {saved}, drawn in {plots}")


if __name__ == "__main__":
    main()
