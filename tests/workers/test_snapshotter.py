"""The snapshotter: a snapshot after enough events, not before, and it goes on after a failure."""

from __future__ import annotations

import pytest
from tests.core.commands import some_id
from tests.simulation.world import World

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.state_snapshot import digest
from holdfast.engine import snapshot
from holdfast.engine.loop import Engine
from holdfast.ports import Journal
from holdfast.workers.snapshotter import Snapshotter

pytestmark = pytest.mark.rule("ENG-003")


async def mint(engine: Engine, first: int, last: int) -> None:
    await engine.submit_many([Mint(some_id(n), AccountId("alice"), Amount(1)) for n in range(first, last + 1)])
    await engine.projector.drain()


async def test_a_snapshot_is_made_when_enough_has_happened_and_not_before() -> None:
    world = World()
    engine = await world.started()
    await engine.projector.drain()

    async def make() -> JournalHead:
        return await snapshot.make(world.files, engine.journal, world.policy)

    snapshotter = Snapshotter(engine, 10, make, engine.durable_head.last)
    await mint(engine, 1, 9)
    await snapshotter.run_once()
    assert world.files.files == {}
    await mint(engine, 10, 10)
    await snapshotter.run_once()
    await snapshotter.run_once()
    assert (snapshotter.snapshots_made, len(world.files.files)) == (1, 1)
    await mint(engine, 11, 25)
    await snapshotter.run_once()
    assert snapshotter.snapshots_made == 2
    await engine.stop()
    state, _ = await snapshot.load_newest(world.files, engine.journal, world.policy, 10**9)
    assert digest(state) == digest(engine.undurable_state)


async def test_a_node_that_is_restarted_often_makes_snapshots_all_the_same() -> None:
    world = World()
    for life in range(5):
        engine = await world.started()

        async def make(journal: Journal = engine.journal) -> JournalHead:
            return await snapshot.make(world.files, journal, world.policy)

        since = await snapshot.newest_event(world.files, engine.journal)
        snapshotter = Snapshotter(engine, 10, make, since)
        await mint(engine, 4 * life + 1, 4 * life + 4)  # never ten in one life
        await snapshotter.run_once()
        assert snapshotter.snapshots_made == (life in (1, 3))
        await engine.stop()
    assert await snapshot.newest_event(world.files, engine.journal) == 20


async def test_a_snapshot_that_cannot_be_made_is_no_end() -> None:
    world = World()
    engine = await world.started()
    await engine.projector.drain()

    async def fail() -> JournalHead:
        raise Unavailable("ENG-003", "simulated: no space left")

    snapshotter = Snapshotter(engine, 5, fail, engine.durable_head.last)
    await mint(engine, 1, 5)
    await snapshotter.run_once()
    assert snapshotter.snapshots_made == 0
    await mint(engine, 6, 10)
    await snapshotter.run_once()
    await engine.stop()
