"""How an engine is put together, waited for and taken apart: the only place of the measurements that knows it."""

from __future__ import annotations

from bench.stores import StorePlace
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy
from holdfast.engine import snapshot
from holdfast.engine.loop import Engine

POLICY = Policy.for_network(Network.DEVELOPMENT)
SNAPSHOTS = "snapshots"


async def open_engine(spot: StorePlace, policy: Policy = POLICY, snapshots: str = SNAPSHOTS) -> Engine:
    """A running engine on what is stored there."""
    journal, tables = spot.open()
    engine = Engine(journal, tables, AtomicFolder(spot.folder / snapshots), MachineClock(), policy)
    await engine.start()
    return engine


async def close_engine(engine: Engine) -> None:
    await engine.stop()
    await engine.tables.close()
    await engine.journal.close()


async def until_in_tables(engine: Engine) -> None:
    """Wait until the tables hold everything that is durable now."""
    await engine.projector.drain()


async def make_snapshot(spot: StorePlace, policy: Policy = POLICY) -> None:
    """A snapshot of all that is stored there; no engine runs."""
    journal, _ = spot.open()
    await snapshot.make(AtomicFolder(spot.folder / SNAPSHOTS), journal, policy)
    await journal.close()
