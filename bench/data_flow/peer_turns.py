"""The peers' turns of the whole way: each round a new process and an empty database, and a reason where one fails."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from statistics import quantiles

import msgspec
from tests.postgres.server import ROLE

from bench.measure import Turn
from bench.peer_modules import PeerFailed, python_module, run_peer, why_not_installed
from bench.stores import Store

DBOS, PROCRASTINATE, PGQUEUER, DRAMATIQ = "DBOS Transact", "procrastinate", "pgqueuer", "dramatiq"
MODULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    DBOS: ("dbos_peer", ("dbos",)),
    PROCRASTINATE: ("procrastinate_peer", ("procrastinate", "psycopg")),
    PGQUEUER: ("pgqueuer_peer", ("pgqueuer", "asyncpg")),
    DRAMATIQ: ("dramatiq_peer", ("dramatiq", "dramatiq_pg", "psycopg2")),
}
PATIENCE_S = 600.0
WAY, DRAIN, P50, P99 = "way", "drain", "p50", "p99"
_databases = count(1)


class PeerFigures(msgspec.Struct):
    """What a peer's process prints."""

    way: float
    drain: float
    alone_ms: list[float]


class PeerTurns:
    """The peers of one store; `missing` says who did not take part, and why."""

    def __init__(self, store: Store, callers: int, jobs: int, alone: int) -> None:
        self._store, self._sizes = store, (callers, jobs, alone)
        self.missing: dict[str, str] = {}
        self.figures: dict[str, dict[str, list[float]]] = {}
        for name in MODULES:
            reason = why_not_installed(*MODULES[name][1])
            if store.server is None and name != DBOS:
                reason = "it needs PostgreSQL; see that table"
            if reason is not None:
                self.missing[name] = reason

    def turns(self) -> list[Turn]:
        return [self._turn(name) for name in MODULES if name not in self.missing]

    def of(self, what: str) -> dict[str, list[float]]:
        """The figures of all peers that took part in every round."""
        return {name: found[what] for name, found in self.figures.items() if name not in self.missing}

    def not_measured(self) -> list[str]:
        return [f"{name}: {reason}" for name, reason in self.missing.items()]

    def _turn(self, name: str) -> Turn:
        async def turn(number: int) -> Mapping[str, float]:
            if name in self.missing:
                return {}
            module = f"bench.data_flow.peers.{MODULES[name][0]}"
            try:
                command = python_module(module, self._place(number), *self._sizes)
                found = await run_peer(command, PeerFigures, PATIENCE_S)
            except PeerFailed as fault:
                self.missing[name] = str(fault)
                return {}
            self._add(name, found)
            return {}

        return turn

    def _add(self, name: str, found: PeerFigures) -> None:
        mine = self.figures.setdefault(name, {what: [] for what in (WAY, DRAIN, P50, P99)})
        p50, p99 = percentiles(found.alone_ms)
        for what, figure in ((WAY, found.way), (DRAIN, found.drain), (P50, p50), (P99, p99)):
            mine[what].append(figure)

    def _place(self, number: int) -> str:
        """An empty one for each turn."""
        if self._store.server is None:
            self._store.folder.mkdir(parents=True, exist_ok=True)
            return f"sqlite:///{self._store.folder}/dbos-{number}.db"
        name = f"way{next(_databases)}"
        self._store.server.psql(f"CREATE DATABASE {name} OWNER {ROLE}", database="postgres")
        return self._store.server.dsn(ROLE, name)


def percentiles(values: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    parts = quantiles(values, n=100, method="inclusive")
    return parts[49], parts[98]
