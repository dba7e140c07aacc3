"""`python -m bench [engine …] [--quick]`: runs the programs, saves their tables and draws them for the documents."""

from __future__ import annotations

import argparse
import asyncio
import platform
from pathlib import Path

from bench import abuse, chain, dashboard, gateway, machine_load, match, measure, plot, work_folder
from bench.api import program as api
from bench.archive import program as archive
from bench.data_flow import idle_providers, soak
from bench.data_flow import program as data_flow
from bench.engine import program as engine
from bench.engine import takeover
from bench.queue import million_jobs
from bench.queue import program as queue
from bench.results import program as results
from bench.spool import program as spool
from bench.stream import program as stream

PROGRAMS = {
    "engine": engine.run,
    "takeover": takeover.run_hung,
    "chain": chain.run,
    "api": api.run,
    "way": data_flow.run,
    "queue": queue.run,
    "queue-million": million_jobs.run,
    "match": match.run,
    "results": results.run,
    "spool": spool.run,
    "emit": spool.run_emit,
    "stream": stream.run,
    "idle": idle_providers.run,
    "gateway": gateway.run,
    "archive": archive.run,
    "abuse": abuse.run,
    "dashboard": dashboard.run,
    "soak": soak.run,
}
WAIT_S = 600.0
"""How long --wait-quiet waits by default."""
PLOTS = Path(__file__).parent.parent / "docs" / "plots"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.add_argument("programs", nargs="*", help=f"which of {', '.join(PROGRAMS)}; all if none is named")
    arguments.add_argument("--quick", action="store_true", help="few rounds of little work: shows only that it works")
    arguments.add_argument("--folder", type=Path, help="where to put the measured files, default bench/out")
    arguments.add_argument("--out", type=Path, default=work_folder.OUT, help="where to save tables as JSON")
    arguments.add_argument("--draw", action="store_true", help="only draw again what was saved")
    arguments.add_argument(
        "--wait-quiet",
        nargs="?",
        type=float,
        const=WAIT_S,
        default=0.0,
        metavar="SECONDS",
        help="before each program wait, at most so long, until the load average is below 0.5",
    )
    given = arguments.parse_args()
    for name in given.programs or PROGRAMS:
        if name not in PROGRAMS:
            arguments.error(f"no program {name}: there is {', '.join(PROGRAMS)}")
        _run(name, given)


def _run(name: str, given: argparse.Namespace) -> None:
    saved = given.out / (f"{name}-quick.json" if given.quick else f"{name}.json")
    if not given.draw:
        measure.save(saved, _measured(name, given.folder, given.wait_quiet, is_quick=given.quick))
    plots = given.out / "quick" if given.quick else PLOTS
    for table in measure.load(saved).tables:
        plot.draw(table, plots / f"{table.name}.svg")
    print(f"saved {saved}, drawn in {plots}")


def _measured(name: str, folder: Path | None, wait_s: float, *, is_quick: bool) -> measure.Report:
    load = machine_load.begin(wait_s)
    with work_folder.work_folder(folder) as shop:
        python, disk = platform.python_version(), work_folder.describe(shop)
        print(f"{name} on Python {python}, {disk}\n{machine_load.describe()}\n", flush=True)
        tables = asyncio.run(PROGRAMS[name](shop, is_quick=is_quick))
    return measure.Report(name, is_quick, python, disk, load, tables)


if __name__ == "__main__":
    main()
