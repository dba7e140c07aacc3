"""The nurse on a real owner: looks after who is due and nobody else, and blames nobody for the node's own absence."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.core.books import some_id
from tests.core.ways import YEAR_MS, public
from tests.simulated.world import World

from holdfast.core.canon import canonical
from holdfast.core.escrow.acts import Mint
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import HEALTH_WHOLE, Provider, ProviderStatus, provider_id
from holdfast.core.values import AccountId, Amount
from holdfast.duties.nurse import Nurse
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

ID = provider_id(public(1))
OAK = AccountId("oak")


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await world.started()
    told = ("oak", OAK, canonical({"AI": {"models": ["echo"]}}), "eu", 2, 4, world.clock.wall + YEAR_MS)
    for command in (
        Mint(some_id(2), OAK, Amount(10_000)),
        Register(public(1), *told),
        Stake(ID, Amount(10_000), some_id(3)),
        Beat(ID, 4),
    ):
        assert isinstance(await started.submit(command), Accepted)
    yield started
    await started.stop()


def one(engine: Engine) -> Provider:
    return engine.state.providers[ID]


@pytest.mark.rule("PRV-002")
async def test_who_is_well_is_not_written_about(engine: Engine, world: World) -> None:
    nurse = Nurse(engine, world.clock)
    before = engine.durable
    for _ in range(50):
        world.clock.monotonic += 1_000
        await nurse.look()
    assert engine.durable == before


@pytest.mark.rule("PRV-002")
async def test_all_that_was_missed_is_found_in_one_look(engine: Engine, world: World) -> None:
    world.clock.monotonic += 6 * 60_000
    await Nurse(engine, world.clock).look()
    assert (one(engine).missed, one(engine).status) == (5, ProviderStatus.SUSPENDED)
    before = engine.durable
    await Nurse(engine, world.clock).look()
    assert engine.durable == before


@pytest.mark.rule("LEA-008")
async def test_after_the_node_was_away_nobody_is_worse_than_before(engine: Engine, world: World) -> None:
    await engine.stop()
    world.clock.wall += 3_600_000
    again = world.engine()
    await again.start()
    await Nurse(again, world.clock).look()
    provider = again.state.providers[ID]
    assert (provider.health_ppm, provider.missed, provider.status) == (HEALTH_WHOLE, 0, ProviderStatus.ACTIVE)
    world.clock.monotonic += 90_000
    await Nurse(again, world.clock).look()
    assert again.state.providers[ID].missed == 1, "from then on it counts"
    await again.stop()
