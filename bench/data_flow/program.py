"""The whole way with real processes: jobs that do nothing, from the client to the verified output, beside peers.

Node, agents and peers are processes of their own. A peer's job does nothing, and its result is stored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.data_flow import synced_echo
from bench.data_flow.own_work import OwnWorkComparison
from bench.data_flow.peer_turns import DBOS, DRAIN, P50, P99, WAY, PeerTurns, percentiles
from bench.data_flow.raised_limits import describe_limits
from bench.data_flow.real_network import BLOCK_MS, JobRunTimes, RealNetwork
from bench.measure import Goal, Table, Turn, at_least, at_most, interleave, ratios_of, show, table
from bench.stores import Store, postgres

CALLERS = 32
SLOTS, DRAIN_SLOTS = 64, 256
ONE, ONE_COMPLETED, TWO = "Holdfast, 1 agent", "Holdfast, 1 agent, until completed", "Holdfast, 2 agents"
RECEIPTS = "Holdfast, receipts only, no agent"
BARE = "bare gRPC stream, a sync a message"
COMPLETED, READABLE = "Holdfast, until completed and told", "Holdfast, until readable"
STAGES: Mapping[str, tuple[str, str]] = {
    "enqueue → lease": ("enqueued", "leased"),
    "lease → ack": ("leased", "acked"),
    "ack → submitted": ("acked", "submitted"),
    "submitted → accepted": ("submitted", "accepted"),
    "accepted → readable": ("accepted", "readable"),
}
"""From one stage to the next, by the times that the events carry."""
WHOLE = "enqueue → readable, all of it"
CLIENT_CPU, NODE_CPU, AGENT_CPU = "client", "node, all its processes", "agent"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Both stores; each table is printed as soon as its store is measured."""
    rounds, jobs, alone = (1, 64, 4) if is_quick else (5, 2_000, 60)
    began, tables = time.monotonic(), list[Table]()

    async def measure(store: Store) -> None:
        for found in await WayComparison(store, jobs, alone).tables(rounds):
            print(show(found), end="\n\n", flush=True)
            tables.append(found)

    for found in await OwnWorkComparison(Store(folder / "own"), is_quick=is_quick).tables(rounds):
        print(show(found), end="\n\n", flush=True)
        tables.append(found)
    await measure(Store(folder / "lite"))
    with postgres(folder / "pg") as server:
        if server is not None:
            await measure(server)
    print(f"took {time.monotonic() - began:.0f} s")
    return tables


class WayComparison:
    """One store: the node's turns and those of its peers, and what came of them."""

    def __init__(self, store: Store, jobs: int, alone: int) -> None:
        self._store, self._jobs, self._alone = store, jobs, alone
        self._peers = PeerTurns(store, CALLERS, jobs, alone)
        self._one = RealNetwork(store.place("one"), 1, SLOTS)
        self._two = RealNetwork(store.place("two"), 2, SLOTS)
        self._drained = RealNetwork(store.place("drained"), 1, DRAIN_SLOTS)
        self._nobody = RealNetwork(store.place("nobody"), 0, SLOTS)
        self._under_load: list[JobRunTimes] = []
        self._drains: list[JobRunTimes] = []
        self._singles: list[JobRunTimes] = []

    async def tables(self, rounds: int) -> list[Table]:
        async with synced_echo.running_echo(self._store.folder / "echoed") as port:
            self._echo = port
            turns: list[Turn] = [self._one_agent, self._two_agents, self._drain, self._receipts, self._bare]
            figures = await interleave([*turns, *self._peers.turns()], rounds)
        made = [self._throughput(figures), self._draining(figures), self._processor(), self._latency(figures)]
        return [*made, *self._stages()]

    # -------------------------------------------------------------------------------- turns

    async def _one_agent(self, _: int) -> Mapping[str, float]:
        async with self._one as network:
            await network.run_jobs(CALLERS, CALLERS)
            under_load = await network.run_jobs(CALLERS, self._jobs)
            single = await network.one_by_one(self._alone)
        self._under_load.append(under_load)
        self._singles.append(single)
        completed = percentiles([1e3 * (job.notified_completed_s - job.asked_s) for job in single.jobs])
        readable = percentiles([1e3 * (job.notified_readable_s - job.asked_s) for job in single.jobs])
        found = {ONE: self._jobs / under_load.took_s, ONE_COMPLETED: self._jobs / under_load.completed_s}
        for name, (p50, p99) in ((COMPLETED, completed), (READABLE, readable)):
            found |= {f"{name}, p50": p50, f"{name}, p99": p99}
        return found

    async def _two_agents(self, _: int) -> Mapping[str, float]:
        async with self._two as network:
            await network.run_jobs(CALLERS, CALLERS)
            return {TWO: self._jobs / (await network.run_jobs(CALLERS, self._jobs)).took_s}

    async def _drain(self, _: int) -> Mapping[str, float]:
        async with self._drained as network:
            await network.run_jobs(CALLERS, CALLERS)
            drained = await network.drain_jobs(CALLERS, self._jobs)
        self._drains.append(drained)
        return {"drain": self._jobs / drained.took_s}

    async def _receipts(self, _: int) -> Mapping[str, float]:
        async with self._nobody as network:
            return {RECEIPTS: self._jobs / (await network.enqueue_only(CALLERS, self._jobs)).took_s}

    async def _bare(self, _: int) -> Mapping[str, float]:
        return {BARE: 1_000 * median(await synced_echo.exchange_messages(self._echo, 1, 10 * self._alone))}

    # -------------------------------------------------------------------------------- tables

    def _throughput(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"Jobs that do nothing, {CALLERS} callers, {SLOTS} slots, {self._jobs} a round, {self._store.title}"
        ours = {name: figures[name] for name in (ONE, ONE_COMPLETED, TWO, RECEIPTS)}
        found = self._with_peers("way-jobs", title, "jobs/s", ours, self._peers.of(WAY))
        found.goals.append(at_least("1 agent, enqueues included", figures[ONE], 600, " jobs/s"))
        found.goals += self._goals_to_peers(figures[ONE], WAY)
        found.goals.append(at_least("2 agents to 1", ratios_of(figures[TWO], figures[ONE]), 1.0))
        again = sum(job.attempts > 1 for walk in self._under_load for job in walk.jobs)
        found.notes.append(f"{again} of {sum(len(walk.jobs) for walk in self._under_load)} jobs needed another lease")
        found.notes += [_conditions(), describe_limits(SLOTS)]
        return found

    def _draining(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"Draining {self._jobs} jobs that were enqueued before, {DRAIN_SLOTS} slots, {self._store.title}"
        found = self._with_peers("way-drain", title, "jobs/s", {ONE: figures["drain"]}, self._peers.of(DRAIN))
        found.goals.append(at_least("1 agent, draining", figures["drain"], 1_000, " jobs/s"))
        found.goals += self._goals_to_peers(figures["drain"], DRAIN)
        found.notes += [_conditions(), describe_limits(DRAIN_SLOTS)]
        return found

    def _goals_to_peers(self, ours: Sequence[float], what: str) -> list[Goal]:
        """The order asks for five times DBOS; the others are shown beside it."""
        theirs = self._peers.of(what)
        return [at_least(f"1 agent to {DBOS}", ratios_of(ours, theirs[DBOS]), 5)] if DBOS in theirs else []

    def _processor(self) -> Table:
        rows: dict[str, list[float]] = {}
        for when, walks in (("enqueues included", self._under_load), ("draining", self._drains)):
            rows[f"{NODE_CPU}, {when}"] = [walk.node_ms for walk in walks]
            rows[f"{AGENT_CPU}, {when}"] = [walk.agent_ms for walk in walks]
            rows[f"{CLIENT_CPU}, {when}"] = [walk.client_ms for walk in walks]
        title = f"Processor time of a job, 1 agent, {self._store.title}"
        found = table(self._store.named("way-cpu"), title, "ms/job", rows, list(rows), None)
        found.goals.append(at_most("node", rows[f"{NODE_CPU}, enqueues included"], 1.5, " ms"))
        found.goals.append(at_most("agent", rows[f"{AGENT_CPU}, enqueues included"], 0.7, " ms"))
        found.notes.append("user and system time of each process with its children; PostgreSQL's server is not in it")
        return found

    def _latency(self, figures: Mapping[str, list[float]]) -> Table:
        title = f"One job alone, {self._alone} a round, {self._store.title}"
        names = [f"{name}, {part}" for name in (COMPLETED, READABLE) for part in (P50, P99)]
        ours = {name: figures[name] for name in names} | {f"{BARE}, p50": figures[BARE]}
        theirs = {f"{name}, {part}": each for part in (P50, P99) for name, each in self._peers.of(part).items()}
        found = table(self._store.named("way-alone"), title, "ms", ours | theirs, [*ours, *sorted(theirs)], None)
        found.goals.append(at_most("until completed and told, p50", figures[f"{COMPLETED}, p50"], 15, " ms"))
        limit = 15.0 + BLOCK_MS
        found.goals.append(at_most("until readable, p50", figures[f"{READABLE}, p50"], limit, " ms"))
        found.not_measured = self._peers.not_measured()
        found.notes.append(_conditions())
        return found

    def _with_peers(
        self, name: str, title: str, unit: str, ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]]
    ) -> Table:
        figures = {**ours, **theirs}
        baseline = DBOS if DBOS in theirs else None
        found = table(self._store.named(name), title, unit, figures, list(figures), baseline)
        found.not_measured = self._peers.not_measured()
        return found

    def _stages(self) -> list[Table]:
        """Where the node's time goes, under load and alone."""
        made = []
        for name, when, walks in (
            ("way-load", "under that load, 1 agent", self._under_load),
            ("way-single", "one at a time", self._singles),
        ):
            rounds = [_medians(walk) for walk in walks]
            figures = {each: [round_[each] for round_ in rounds] for each in (WHOLE, *STAGES)}
            title = f"Where a job's time goes, {when}, {self._store.title}"
            found = table(self._store.named(name), title, "ms", figures, list(figures), None)
            found.notes.append("by the times in the events: one clock reading a batch, whole ms; medians of jobs")
            made.append(found)
        return made


def _medians(walk: JobRunTimes) -> dict[str, float]:
    """The median job's time at every stage, in milliseconds."""

    def between(begin: str, end: str) -> float:
        return float(median([getattr(job, end) - getattr(job, begin) for job in walk.jobs]))

    return {WHOLE: between("enqueued", "readable"), **{name: between(*marks) for name, marks in STAGES.items()}}


def _conditions() -> str:
    return f"until readable, which is in a block: one every {BLOCK_MS} ms; default flush of spools; all on one machine"
