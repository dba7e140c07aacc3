"""How an engine is put together, waited for and taken apart: the only place of the measurements that knows it.

It is put together as a node does it: its projector is a process of its own.
"""

from __future__ import annotations

from hashlib import sha512

import msgspec
from tests.stories.node_process import on_postgres

from bench.stores import StorePlace
from holdfast import config
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.files import AtomicFolder
from holdfast.app.projector_process import ProjectorProcess
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy
from holdfast.engine.loop import Engine
from holdfast.engine.snapshots import snapshot_files
from holdfast.system.interpreter import tune_owner
from holdfast.workers.evictor import Evictor
from holdfast.workers.proposer import Proposer

POLICY = Policy.for_network(Network.DEVELOPMENT)
SNAPSHOTS = "snapshots"


async def open_engine(spot: StorePlace, policy: Policy = POLICY, snapshots: str = SNAPSHOTS) -> Engine:
    """A running engine on what is stored there."""
    journal, tables = spot.open()
    files, projector = AtomicFolder(spot.folder / snapshots), ProjectorProcess(node_config(spot, policy))
    engine = Engine(journal, tables, files, MachineClock(), policy, projector=projector)
    await engine.start()
    tune_owner()
    return engine


def node_config(spot: StorePlace, policy: Policy) -> config.Config:
    """What a node on this store would be told."""
    environ = {} if spot.address is None else on_postgres(spot.address)
    loaded = config.load(None, environ, {"data": spot.folder})
    assert isinstance(loaded, config.Config), loaded
    return msgspec.structs.replace(loaded, policy=policy)


async def close_engine(engine: Engine) -> None:
    await engine.stop()
    await engine.tables.close()
    await engine.journal.close()


async def until_in_tables(engine: Engine) -> None:
    """Wait until the tables hold everything that is durable now."""
    await engine.wait_tables()


async def make_final(engine: Engine) -> None:
    """What a node's workers do with blocks that are deep enough: pay out, and evict once the tables hold it all."""
    await Proposer(engine, BenchSigner()).run_once()
    await until_in_tables(engine)
    await Evictor(engine).run_once()


class BenchSigner:
    """Signs without a curve: signatures are not measured here."""

    public = bytes(range(32))

    def sign(self, message: bytes) -> bytes:
        return sha512(message).digest()


async def make_snapshot(spot: StorePlace, policy: Policy = POLICY) -> None:
    """A snapshot of all that is stored there; no engine runs."""
    journal, _ = spot.open()
    await snapshot_files.make(AtomicFolder(spot.folder / SNAPSHOTS), journal, policy)
    await journal.close()
