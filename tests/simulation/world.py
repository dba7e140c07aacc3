"""A clock and files under the test's control, and engines put together from simulated parts."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.tables import SimulatedTables

from holdfast.core.base.clock_record import RecordTime
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Batch
from holdfast.core.base.values import Network
from holdfast.core.chain.messages import EvictFinalTxs
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import EnginePolicy, Policy
from holdfast.core.state import State
from holdfast.core.workflows.finalize import has_evictable_txs
from holdfast.engine.loop import Engine
from holdfast.engine.projection.projector import Projector
from holdfast.engine.recover import recover

CHECKED_EVERY = 16
DEVELOPMENT = Policy.for_network(Network.DEVELOPMENT)


class SimulatedClock:
    """Time stands still until the test moves it; sleeping takes no time."""

    def __init__(self, wall_ms: int = 1_000_000) -> None:
        self.wall, self.monotonic = wall_ms, 5_000
        self.slept: list[int] = []
        self.synchronized = True

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def is_synchronized(self) -> bool:
        return self.synchronized

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)
        await asyncio.sleep(0)


class SimulatedFiles:
    """A folder in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def names(self) -> list[str]:
        return sorted(self.files)

    async def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    async def replace(self, name: str, raw: bytes) -> None:
        self.files[name] = raw

    async def delete(self, name: str) -> None:
        self.files.pop(name, None)


class World:
    """Everything that outlives a crash of the simulated node, and the engines that live on it."""

    def __init__(self, policy: Policy = DEVELOPMENT) -> None:
        self.disk, self.tables, self.files, self.clock = Disk(), SimulatedTables(), SimulatedFiles(), SimulatedClock()
        self.policy = policy

    def engine(self, *, ignores_lock: bool = True, owner: str = "node") -> Engine:
        """A new owner; by default one that believes the one before it is dead."""
        journal = SimulatedJournal(self.disk, ignores_lock=ignores_lock)
        engine = Engine(journal, self.tables, self.files, self.clock, self.policy, owner)
        check_invariants_often(engine)
        return engine

    async def recovered(self) -> State:
        """The state that a new owner would find, before it writes anything."""
        journal = SimulatedJournal(self.disk, ignores_lock=True)
        return (await recover(journal, self.tables, self.files, self.policy)).state

    async def projected(self) -> None:
        """The tables, written up to the end of the journal, as a projector does before it waits."""
        journal = SimulatedJournal(self.disk, ignores_lock=True)
        projector = Projector(journal, self.tables, self.files, self.policy)
        await projector.load()
        await projector.catch_up()

    async def started(self) -> Engine:
        engine = self.engine()
        await engine.start()
        return engine


def check_invariants_often(engine: Engine, every: int = CHECKED_EVERY) -> None:
    """Check the whole set of invariants every n batches, as the cheap ones are at every batch."""
    confirm = engine._confirm

    def confirm_and_check(batch: Batch, *more: Any) -> None:
        confirm(batch, *more)
        if batch.number % every == 0 and (broken := broken_invariants(engine.undurable_state)):
            engine.fail(Corrupt("ENG-001", f"does not hold after batch {batch.number}: {'; '.join(broken)}"))

    engine._confirm = confirm_and_check  # type: ignore[method-assign, assignment]


async def drop_claims(engine: Engine) -> None:
    """Let memory drop every claim: batches come and the tables hold them."""
    claims = engine.undurable_state.claims
    while claims.recent or claims.older:
        await engine.wait_tables()
        await engine.submit(RecordTime())


async def evict_final(engine: Engine) -> None:
    """Let everything leave memory that is final, as the evictor does once the tables hold it."""
    await engine.wait_tables()
    while has_evictable_txs(engine.undurable_state, as_of := engine.tables_progress.checkpoint.last):
        await engine.submit(EvictFinalTxs(as_of))


async def stop_engine(engine: Engine) -> None:
    """Stop an engine and let its stores go."""
    await engine.stop()
    await engine.tables.close()
    await engine.journal.close()


def small_batches(events_max: int = 4, rows_max: int = 4, snapshot_every_events: int = 1_000_000) -> Policy:
    """A policy whose bounds are reached at once."""
    engine = EnginePolicy(
        batch_events_max=events_max, projection_rows_max=rows_max, snapshot_every_events=snapshot_every_events
    )
    return Policy(network=Network.DEVELOPMENT, engine=engine)
