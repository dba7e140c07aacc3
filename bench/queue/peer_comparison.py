"""The queue beside queues that people use, each by its own API, all of them in the same rounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from itertools import count
from statistics import quantiles

import msgspec
from tests.postgres.server import ROLE

from bench.engine.opened import close_engine
from bench.measure import Table, Turn, at_least, at_most, interleave, ratios_of, table
from bench.peer_modules import (
    NODE_HOME,
    ROOT,
    PeerFailed,
    python_module,
    run_peer,
    versions,
    why_not_installed,
    why_not_on_node,
)
from bench.queue import contestant as ours
from bench.queue.peers.contract import BATCH, CLIENTS, REST_S, share
from bench.stores import Store
from holdfast.core.lease.messages import JobAssigned
from holdfast.engine.loop import Engine
from holdfast.workers.dispatcher import Dispatcher

OURS = "Holdfast"
ON_FILES = {"huey": ("huey",)}
ON_POSTGRES = {"pgqueuer": ("pgqueuer", "asyncpg"), "procrastinate": ("procrastinate", "psycopg")}
ON_NODE = ("pg-boss", "graphile-worker")
SIZES = {"procrastinate": (160, 1_000), "huey": (320, 0)}
"""Slow ones do less: one by one, and in bulk."""
PATIENCE_S = 600.0
BULK_MIN = 40_000
_databases = count(1)


class QueueFigures(msgspec.Struct):
    """What a contestant has measured in one turn."""

    single: dict[int, float]
    bulk: float
    drain: float
    lease_ms: list[float]


class QueueContest:
    """All contestants of one store."""

    def __init__(self, store: Store, one: int, bulk: int, leases: int) -> None:
        self._store, self._one, self._bulk, self._leases = store, one, bulk, leases
        self._figures: dict[str, list[QueueFigures]] = {OURS: []}
        self._chunks: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
        self._missing: dict[str, str] = {}
        self._commands = self._find_peers()

    def _find_peers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, modules in (ON_FILES if self._store.server is None else ON_POSTGRES).items():
            if (reason := why_not_installed(*modules)) is not None:
                self._missing[name] = reason
            else:
                found[name] = python_module(f"bench.queue.peers.{name}_queue")
        for name in ON_NODE if self._store.server is not None else ():
            if (reason := why_not_on_node(name)) is not None:
                self._missing[name] = reason
            else:
                found[name] = ["node", str(ROOT / "bench" / "queue" / "peers" / "node_queues.mjs"), name]
        return found

    async def tables(self, rounds: int) -> list[Table]:
        self._engine = await ours.open_engine_with_providers(self._store.place("contest"))
        await interleave([self._chunked, self._ours, *map(self._turn, self._commands)], rounds)
        await close_engine(self._engine)
        return [self._single_table(), self._lease_table(), self._bulk_table()]

    # -------------------------------------------------------------------------------- turns

    async def _ours(self, _: int) -> Mapping[str, float]:
        engine, single = self._engine, {}
        for clients in CLIENTS:
            commands = ours.make_enqueues(engine, share(self._one, clients))
            single[clients], _waits = await ours.one_by_one(engine, commands, clients)
        await _finish(engine)
        commands, began = ours.make_enqueues(engine, self._bulk), time.perf_counter()
        for at in range(0, self._bulk, BATCH):
            await ours.enqueue_all(engine, commands[at : at + BATCH])
        bulk = self._bulk / (time.perf_counter() - began)
        done, took = await ours.drain_all(engine)
        assert done == self._bulk
        await ours.finalize_and_project(engine)
        waits = await measure_leases_ms(engine, self._leases)
        self._figures[OURS].append(QueueFigures(single, bulk, done / took, waits))
        return {}

    async def _chunked(self, _: int) -> Mapping[str, float]:
        """As many jobs without clients of their own: what a client costs."""
        for clients in CLIENTS:
            commands = ours.make_enqueues(self._engine, share(self._one, clients))
            began = time.perf_counter()
            for at in range(0, len(commands), clients):
                await ours.enqueue_all(self._engine, commands[at : at + clients])
            self._chunks[clients].append(len(commands) / (time.perf_counter() - began))
        await _finish(self._engine)
        return {}

    def _turn(self, name: str) -> Turn:
        one, bulk = SIZES.get(name, (self._one, self._bulk))

        async def turn(number: int) -> Mapping[str, float]:
            if name in self._missing:
                return {}
            sizes = (min(one, self._one), bulk if name not in SIZES or self._bulk >= 5 * bulk else 0, self._leases)
            command = [*self._commands[name], self._place(name, number), *map(str, sizes)]
            try:
                cwd = NODE_HOME if name in ON_NODE else ROOT
                found = await run_peer(command, QueueFigures, PATIENCE_S, cwd)
            except PeerFailed as fault:
                self._missing[name] = str(fault)
                return {}
            self._figures.setdefault(name, []).append(found)
            return {}

        return turn

    def _place(self, name: str, number: int) -> str:
        """An empty one for each turn."""
        if self._store.server is None:
            return str(self._store.folder / f"{name}-{number}")
        database = f"peer{next(_databases)}"
        self._store.server.psql(f"CREATE DATABASE {database} OWNER {ROLE}", database="postgres")
        return self._store.server.dsn(ROLE, database)

    # -------------------------------------------------------------------------------- tables

    def _present(self) -> dict[str, list[QueueFigures]]:
        """Ours, and the peers that took part in every round."""
        return {name: found for name, found in self._figures.items() if name not in self._missing}

    def _single_table(self) -> Table:
        rows = {f"{OURS}, chunks of {clients} without clients": each for clients, each in self._chunks.items()}
        for clients in CLIENTS:
            for name, found in self._present().items():
                rows[_single(name, clients)] = [each.single[clients] for each in found]
        title = f"Durable enqueues one by one, {self._store.title}"
        made = self._table("queue-single", title, "jobs/s", rows, _single(OURS, 1))
        for clients in CLIENTS:
            mine = rows[_single(OURS, clients)]
            for name in list(self._present())[1:]:
                says = f"{clients} clients to {name}"
                made.goals.append(at_least(says, ratios_of(mine, rows[_single(name, clients)]), 1.0))
        for clients, limit in ((16, 0.85), (64, 0.7)):
            ratios = ratios_of(rows[_single(OURS, clients)], self._chunks[clients])
            made.goals.append(at_least(f"{clients} clients to chunks of {clients}", ratios, limit))
        return made

    def _lease_table(self) -> Table:
        rows: dict[str, list[float]] = {}
        for part, at in (("p50", 49), ("p99", 98)):
            for name, found in self._present().items():
                waits = [quantiles(each.lease_ms, n=100, method="inclusive")[at] for each in found]
                rows[f"{name}, {part}"] = waits
        title = f"From asking until leased, one at a time, {self._store.title}"
        made = self._table("queue-leased", title, "ms", rows, f"{OURS}, p50")
        for part, limit in (("p50", 1.0), ("p99", 5.0)):
            mine = rows[f"{OURS}, {part}"]
            made.goals.append(at_most(part, mine, limit, " ms"))
            for name in list(self._present())[1:]:
                theirs = rows[f"{name}, {part}"]
                made.goals.append(at_least(f"{part} of {name} to ours", ratios_of(theirs, mine), 1.0))
        made.notes.append("ours: until a follower is told of the lease; peers: until the worker's function is called")
        return made

    def _bulk_table(self) -> Table:
        rows = {}
        for what in ("bulk", "drain"):
            for name, found in self._present().items():
                figures = [float(getattr(each, what)) for each in found]
                if all(figures):
                    rows[f"{what}, {name}"] = figures
        made = self._table(
            "queue-contest", f"In bulk and drained, {self._store.title}", "jobs/s", rows, f"bulk, {OURS}"
        )
        made.goals.append(at_least(f"bulk of {BATCH}", rows[f"bulk, {OURS}"], BULK_MIN, "/s"))
        made.notes.append("drain: a peer fetches, does nothing and marks as done; ours assigns, acks, proves and pays")
        return made

    def _table(self, name: str, title: str, unit: str, rows: Mapping[str, list[float]], baseline: str) -> Table:
        made = table(self._store.named(name), title, unit, rows, list(rows), baseline)
        made.not_measured = [f"{peer}: {reason}" for peer, reason in self._missing.items()]
        python = [peer for peer in self._present() if peer in ON_FILES | ON_POSTGRES]
        if python:
            made.notes.append(f"peers: {versions(*python)}")
        return made


def _single(name: str, clients: int) -> str:
    return f"{name}, {clients} client{'' if clients == 1 else 's'}"


async def _finish(engine: Engine) -> None:
    await ours.drain_all(engine)
    await ours.finalize_and_project(engine)


async def measure_leases_ms(engine: Engine, many: int) -> list[float]:
    """From asking until a follower is told of the durable lease, each job alone, with a dispatcher that it wakes."""
    dispatching, waits = asyncio.create_task(Dispatcher(engine).run()), list[float]()
    events = engine.event_stream.follow(engine.durable_head.last)
    for command in ours.make_enqueues(engine, many):
        await asyncio.sleep(REST_S)
        began = time.perf_counter()
        (id_,) = await ours.enqueue_all(engine, [command])
        while not (isinstance(event := (await anext(events)).event, JobAssigned) and event.job_id == id_):
            pass
        waits.append((time.perf_counter() - began) * 1e3)
    dispatching.cancel()
    await asyncio.gather(dispatching, return_exceptions=True)
    await ours.finish_leases(engine, ours.live_leases(engine))
    await ours.finalize_and_project(engine)
    return waits
