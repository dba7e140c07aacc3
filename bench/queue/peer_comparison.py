"""The queue against queues that people use: each by its own API, one by one, in bulk, and drained by its worker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path

from tests.postgres.server import ROLE

from bench import work_folder
from bench.engine.contestant import close_engine
from bench.measure import Table, Turn, at_least, interleave, ratios_of, table
from bench.queue import contestant as ours
from bench.stores import Store

HERE = Path(__file__).parent
OURS = "Holdfast"
WHEELS = {"pgqueuer": ["pgqueuer", "asyncpg"], "procrastinate": ["procrastinate", "psycopg[binary]"], "huey": ["huey"]}
MODULES = ["pg-boss", "graphile-worker", "pg"]
SIZES = {"procrastinate": (100, 1_000), "huey": (500, 0)}
"""Slow ones do less: one by one, and in bulk."""
SHARES = {"pg-boss": 2.0, "graphile-worker": 2.0, "pgqueuer": 5.0, "procrastinate": 100.0, "huey": 20.0}
"""What GOALS asks of whole lives, as a ratio to the peer's drain."""
_databases = count(1)


@cache
def commands() -> Mapping[str, list[str]]:
    """The peers that can be had, and how each is run; of the others a loud line says that they were not measured."""
    found: dict[str, list[str]] = {}
    home = work_folder.OUT / "peers-queue"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    for name, wheels in WHEELS.items():
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wheels]
        if _is_done(install, home, name):
            found[name] = [str(python), "-P", str(HERE / "peer_process.py"), name]
    (home / "package.json").write_text("{}")
    if _is_done(["npm", "install", "--silent", "--no-audit", "--no-fund", *MODULES], home, "pg-boss, graphile-worker"):
        for name in ("pg-boss", "graphile-worker"):
            found[name] = ["node", str(HERE / "peer_process.mjs"), name]
    return found


def _is_done(command: list[str], home: Path, name: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, cwd=home).returncode == 0
    except OSError:
        done = False
    if not done:
        print(f"{name} cannot be installed: NOT MEASURED", file=sys.stderr)
    return done


async def compare_peers(store: Store, rounds: int, many: int) -> Table:
    """Jobs a second by every queue's own means; a peer's worker does nothing, ours matches, proves and pays."""
    engine = await ours.open_engine_with_providers(store.place("contest"))
    on_files = store.server is None
    peers = [name for name in commands() if (name == "huey") == on_files]

    async def of_ours(_: int) -> Mapping[str, float]:
        one = max(100, many // 10)
        single, _waits = await ours.one_by_one(engine, ours.make_enqueues(engine, one), 1)
        commands_, began = ours.make_enqueues(engine, many), time.perf_counter()
        for at in range(0, many, 1_000):
            await ours.enqueue_all(engine, commands_[at : at + 1_000])
        bulk = many / (time.perf_counter() - began)
        done, took = await ours.drain_all(engine)
        await ours.finalize_and_project(engine)
        return _named(OURS, {"one": single, "bulk": bulk, "drain": done / took})

    turns: list[Turn] = [of_ours, *(_turn(store, name, many) for name in peers)]
    figures = await interleave(turns, rounds)
    await close_engine(engine)
    title = f"Queues by their own means, {store.title}"
    found = table(store.named("queue-contest"), title, "jobs/s", figures, sorted(figures, key=_order), None)
    for name in peers:
        ratios = ratios_of(figures[f"drain, {OURS}"], figures[f"drain, {name}"])
        found.goals.append(at_least(f"drained, to {name}", ratios, SHARES[name]))
    found.notes.append(
        "drain: a peer fetches, does nothing and marks as done; ours assigns, acknowledges, proves, pays"
    )
    return found


def _order(row: str) -> tuple[int, bool, str]:
    what, _, who = row.partition(", ")
    return ("one by one", "bulk", "drain").index(what), who != OURS, who


def _named(who: str, figures: Mapping[str, float]) -> dict[str, float]:
    names = {"one": "one by one", "bulk": "bulk", "drain": "drain"}
    return {f"{names[what]}, {who}": figure for what, figure in figures.items()}


def _turn(store: Store, name: str, many: int) -> Turn:
    one, bulk = SIZES.get(name, (max(100, many // 10), many))

    async def run(number: int) -> Mapping[str, float]:
        where = str(store.folder / f"huey-{number}") if store.server is None else _database(store)
        command = [*commands()[name], where, str(min(one, many)), str(min(bulk, many))]
        return _named(name, await asyncio.to_thread(run_peer, command))

    return run


def run_peer(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=work_folder.OUT / "peers-queue")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def _database(store: Store) -> str:
    """An empty one for each turn."""
    assert store.server is not None
    name = f"peer{next(_databases)}"
    store.server.psql(f"CREATE DATABASE {name} OWNER {ROLE}", database="postgres")
    return str(store.server.dsn(ROLE, name))
