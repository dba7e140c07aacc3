"""The keeper: a snapshot when enough has happened, not before, and a failure is no end."""

from __future__ import annotations

import pytest
from tests.core.books import some_id
from tests.simulated.world import World

from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Tip
from holdfast.core.refusal import Unavailable
from holdfast.core.state import digest
from holdfast.core.values import AccountId, Amount
from holdfast.duties.keeper import Keeper
from holdfast.engine import snapshot
from holdfast.engine.loop import Engine
from holdfast.ports import Journal

pytestmark = pytest.mark.rule("ENG-003")


async def mint(engine: Engine, first: int, last: int) -> None:
    await engine.submit_many([Mint(some_id(n), AccountId("alice"), Amount(1)) for n in range(first, last + 1)])
    await engine.projector.drain()


async def test_a_snapshot_is_made_when_enough_has_happened_and_not_before() -> None:
    world = World()
    engine = await world.started()
    await engine.projector.drain()

    async def make() -> Tip:
        return await snapshot.make(world.files, engine.journal, world.policy)

    keeper = Keeper(engine, world.clock, 10, make, engine.durable.last)
    await mint(engine, 1, 9)
    await keeper.look()
    assert world.files.files == {}
    await mint(engine, 10, 10)
    await keeper.look()
    await keeper.look()
    assert (keeper.made, len(world.files.files)) == (1, 1)
    await mint(engine, 11, 25)
    await keeper.look()
    assert keeper.made == 2
    await engine.stop()
    state, _ = await snapshot.newest(world.files, engine.journal, world.policy, 10**9)
    assert digest(state) == digest(engine.state)


async def test_a_node_that_is_restarted_often_makes_snapshots_all_the_same() -> None:
    world = World()
    for life in range(5):
        engine = await world.started()

        async def make(journal: Journal = engine.journal) -> Tip:
            return await snapshot.make(world.files, journal, world.policy)

        since = await snapshot.last_event(world.files, engine.journal)
        keeper = Keeper(engine, world.clock, 10, make, since)
        await mint(engine, 4 * life + 1, 4 * life + 4)  # never ten in one life
        await keeper.look()
        assert keeper.made == (life in (1, 3))
        await engine.stop()
    assert await snapshot.last_event(world.files, engine.journal) == 20


async def test_a_snapshot_that_cannot_be_made_is_no_end() -> None:
    world = World()
    engine = await world.started()
    await engine.projector.drain()

    async def fail() -> Tip:
        raise Unavailable("ENG-003", "simulated: no space left")

    keeper = Keeper(engine, world.clock, 5, fail, engine.durable.last)
    await mint(engine, 1, 5)
    await keeper.look()
    assert keeper.made == 0
    await mint(engine, 6, 10)
    await keeper.look()
    await engine.stop()
