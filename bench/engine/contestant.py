"""Holdfast as a contestant: the engine under callers and bulks on either store, and its pieces in a row."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence

from bench.stores import StorePlace
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.core import journal_codec, state_machine
from holdfast.core.base.event import Batch, Command, Decided, Event, JournalHead, head_of
from holdfast.core.base.values import AccountId, Amount, Height, Network, ReservationId, Term
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Reserve
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.core.tables import discard_rows
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, Outcome
from holdfast.engine.projector_host import ProjectorTask
from holdfast.engine.tables_progress import TablesProgress

ALICE, BOB = AccountId("alice"), AccountId("bob")
POLICY = Policy.for_network(Network.DEVELOPMENT)


def ids(count: int) -> list[ReservationId]:
    return [ReservationId(os.urandom(32)) for _ in range(count)]


def reserves(of: Sequence[ReservationId]) -> list[Command]:
    return [Reserve(id_, ALICE, Amount(5)) for id_ in of]


def charges(of: Sequence[ReservationId], height: int) -> list[Command]:
    return [Charge(id_, Height(height), BOB, Amount(3)) for id_ in of]


async def open_engine(spot: StorePlace, snapshots: str = "snapshots") -> Engine:
    """A running engine on what is stored there."""
    journal, tables = spot.open()
    engine = Engine(journal, tables, AtomicFolder(spot.folder / snapshots), MachineClock(), POLICY)
    await engine.start()
    return engine


async def new_engine(spot: StorePlace) -> Engine:
    """A running engine in which alice has money."""
    engine = await open_engine(spot)
    await engine.submit(Mint(os.urandom(32), ALICE, Amount(10**12)))
    return engine


async def close_engine(engine: Engine) -> None:
    await engine.stop()
    await engine.tables.close()
    await engine.journal.close()


async def settle(engine: Engine, height: int) -> None:
    """Between turns: the block becomes final and the tables catch up, so that no contestant pays for another's turn."""
    check([await engine.submit(Finalize(Height(height)))])
    await engine.wait_tables()


def check(outcomes: Sequence[Outcome]) -> None:
    """A figure counts only where all was done."""
    bad = [each for each in outcomes if not isinstance(each, Accepted)]
    assert not bad, bad[:1]


async def call(engine: Engine, callers: int, pairs: int, height: int) -> tuple[float, list[float]]:
    """A closed loop of callers who reserve, then charge; commands per second, and how long each answer took."""
    waits: list[float] = []
    outcomes: list[Outcome] = []

    async def caller(mine: Sequence[Command]) -> None:
        for command in mine:
            asked = time.perf_counter()
            outcomes.append(await engine.submit(command))
            waits.append(time.perf_counter() - asked)

    theirs = [ids(pairs) for _ in range(callers)]
    alternating = [
        [each for pair in zip(reserves(of), charges(of, height), strict=True) for each in pair] for of in theirs
    ]
    began = time.perf_counter()
    await asyncio.gather(*map(caller, alternating))
    took = time.perf_counter() - began
    check(outcomes)
    return 2 * callers * pairs / took, waits


async def bulk(engine: Engine, count: int, size: int, height: int) -> tuple[float, float]:
    """Reserve and charge by `submit_many`; commands per second until all are answered, and until all are in tables."""
    of = ids(count)
    chunks = [
        chunk
        for at in range(0, count, size)
        for chunk in (reserves(of[at : at + size]), charges(of[at : at + size], height))
    ]
    began = time.perf_counter()
    for chunk in chunks:
        check(await engine.submit_many(chunk))
    answered = time.perf_counter() - began
    await engine.wait_tables()
    return 2 * count / answered, 2 * count / (time.perf_counter() - began)


class DirectBatches:
    """Decide, apply, pack, append, batch after batch and without callers: the ceiling of the design."""

    def __init__(self, spot: StorePlace, with_tables: bool) -> None:
        self.state, self.tip = State(POLICY), JournalHead()
        self._journal, self._tables = spot.open()
        self.state.touched = discard_rows()
        files = AtomicFolder(spot.folder / "snapshots")
        self._projector = ProjectorTask(self._journal, self._tables, files, MachineClock(), POLICY)
        self._progress = TablesProgress(self._projector, POLICY.engine, lambda _: None)
        self._with_tables = with_tables

    async def open(self) -> None:
        await self._journal.acquire()
        if self._with_tables:
            self._projector.start()
        await self._batch([Mint(os.urandom(32), ALICE, Amount(10**12))])

    async def close(self) -> None:
        await self._projector.stop()
        await self._tables.close()
        await self._journal.close()

    async def run(self, count: int, size: int, height: int) -> float:
        """Reserve and charge in batches of `size`; commands per second."""
        of = ids(count)
        chunks = [
            chunk
            for at in range(0, count, size)
            for chunk in (reserves(of[at : at + size]), charges(of[at : at + size], height))
        ]
        began = time.perf_counter()
        for chunk in chunks:
            await self._batch(chunk)
        return 2 * count / (time.perf_counter() - began)

    async def settle(self, height: int) -> None:
        await self._batch([Finalize(Height(height))])
        if self._with_tables:
            await self._progress.wait(self.tip.last)
        self.state.claims.recent.clear()

    async def _batch(self, commands: Sequence[Command]) -> None:
        batch = decide_batch(self.state, self.tip, commands)
        await self._journal.append(batch, ())
        self.tip = head_of(batch)


def decide_batch(state: State, head: JournalHead, commands: Sequence[Command]) -> Batch:
    """Decide and apply in memory, then pack."""
    events: list[Event] = []
    now_ms = time.time_ns() // 1_000_000
    for command in commands:
        decided = state_machine.decide(state, command, now_ms)
        assert isinstance(decided, Decided), decided
        for event in decided.events:
            state_machine.apply(state, event)
        events.extend(decided.events)
    return journal_codec.pack(head, Term(1), events, now_ms)


class JournalAlone:
    """Pack and append batches of events without deciding them: what the store costs by itself."""

    def __init__(self, spot: StorePlace) -> None:
        self._journal, _ = spot.open()
        self._tip = JournalHead()

    async def open(self) -> None:
        await self._journal.acquire()

    async def close(self) -> None:
        await self._journal.close()

    async def run(self, count: int, size: int) -> float:
        """Two events an id; events per second."""
        chunks = list(_events(count, size))
        began = time.perf_counter()
        for chunk in chunks:
            batch = journal_codec.pack(self._tip, Term(1), chunk, time.time_ns() // 1_000_000)
            await self._journal.append(batch, ())
            self._tip = head_of(batch)
        return 2 * count / (time.perf_counter() - began)


def _events(count: int, size: int) -> Iterator[list[Event]]:
    """The events of reserves and charges, from a state of their own."""
    state = State(POLICY)
    decide_batch(state, JournalHead(), [Mint(os.urandom(32), ALICE, Amount(10**12))])
    of = ids(count)
    for at in range(0, count, size):
        for chunk in (reserves(of[at : at + size]), charges(of[at : at + size], 1)):
            yield journal_codec.unpack(decide_batch(state, JournalHead(), chunk))
