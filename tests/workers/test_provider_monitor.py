"""The provider monitor on a real owner: maintains only providers that are due, and credits an outage of the node."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, public
from tests.simulation.world import World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import HEALTH_MAX_PPM, Provider, ProviderStatus, provider_id
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.workers.provider_monitor import ProviderMonitor

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
        Heartbeat(ID, 4),
    ):
        assert isinstance(await started.submit(command), Accepted)
    yield started
    await started.stop()


def one(engine: Engine) -> Provider:
    return engine.undurable_state.providers[ID]


@pytest.mark.rule("PRV-002")
async def test_a_healthy_provider_causes_no_events(engine: Engine, world: World) -> None:
    monitor = ProviderMonitor(engine)
    before = engine.durable_head
    for _ in range(50):
        world.clock.monotonic += 1_000
        await monitor.run_once()
    assert engine.durable_head == before


@pytest.mark.rule("PRV-002")
async def test_all_that_was_missed_is_found_in_one_run(engine: Engine, world: World) -> None:
    world.clock.monotonic += 6 * 60_000
    await ProviderMonitor(engine).run_once()
    assert (one(engine).missed_heartbeats, one(engine).status) == (5, ProviderStatus.SUSPENDED)
    before = engine.durable_head
    await ProviderMonitor(engine).run_once()
    assert engine.durable_head == before


@pytest.mark.rule("LEA-008")
async def test_no_provider_is_worse_off_after_an_outage_of_the_node(engine: Engine, world: World) -> None:
    await engine.stop()
    world.clock.wall += 3_600_000
    again = world.engine()
    await again.start()
    await ProviderMonitor(again).run_once()
    provider = again.undurable_state.providers[ID]
    assert (provider.health_ppm, provider.missed_heartbeats, provider.status) == (
        HEALTH_MAX_PPM,
        0,
        ProviderStatus.ACTIVE,
    )
    world.clock.monotonic += 90_000
    await ProviderMonitor(again).run_once()
    assert again.undurable_state.providers[ID].missed_heartbeats == 1, "from then on it counts"
    await again.stop()
