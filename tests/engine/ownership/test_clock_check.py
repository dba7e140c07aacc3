"""A clock that a witness contradicts holds admission and expiry until the operator accepts it (CAN-006)."""

from __future__ import annotations

import pytest
from tests.core.commands import some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import World

from holdfast.core.base.clock_record import RecordTime
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Amount, TaskId
from holdfast.core.escrow.messages import Mint
from holdfast.core.queue.requeue import Requeue
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.engine.ownership.clock_check import AHEAD_MS_MAX, DAY_MS, why_not_believed
from holdfast.workers.provider_monitor import ProviderMonitor
from holdfast.workers.reaper import Reaper

pytestmark = pytest.mark.rule("CAN-006")
NOW_MS = 1_800_000_000_000
MONTH_MS = 30 * DAY_MS


@pytest.mark.parametrize(
    ("last_ms", "store_ms", "is_synchronized", "is_believed"),
    [
        pytest.param(None, None, False, True, id="an empty journal contradicts nothing"),
        pytest.param(NOW_MS - 12 * MONTH_MS, None, True, True, id="a year switched off is no fault"),
        pytest.param(NOW_MS - MONTH_MS, None, False, True, id="30 days without a time server"),
        pytest.param(NOW_MS - MONTH_MS - 1, None, False, False, id="more than 30 days without one"),
        pytest.param(NOW_MS - MONTH_MS, NOW_MS - AHEAD_MS_MAX, True, True, id="a minute ahead of the store"),
        pytest.param(NOW_MS - MONTH_MS, NOW_MS - AHEAD_MS_MAX - 1, True, False, id="more than a minute"),
        pytest.param(None, NOW_MS - AHEAD_MS_MAX - 1, True, False, id="also in an empty journal"),
        pytest.param(NOW_MS - 1, NOW_MS - 12 * MONTH_MS, True, True, id="the journal has this time already"),
        pytest.param(NOW_MS + MONTH_MS, NOW_MS + MONTH_MS, False, True, id="a clock behind is no such fault"),
    ],
)
def test_only_a_witness_makes_a_jump_a_fault(
    last_ms: int | None, store_ms: int | None, *, is_synchronized: bool, is_believed: bool
) -> None:
    refusal = why_not_believed(NOW_MS, last_ms, store_ms, is_synchronized=is_synchronized)
    assert (refusal is None) == is_believed
    assert refusal is None or "--accept-clock" in refusal.hint


def jumped_world() -> World:
    world = World()
    world.clock.wall, world.clock.synchronized = NOW_MS, False
    return world


def make_engine(world: World, *, accept_clock: bool = False) -> Engine:
    journal = SimulatedJournal(world.disk, ignores_lock=True)
    return Engine(journal, world.tables, world.files, world.clock, world.policy, accept_clock=accept_clock)


async def test_a_clock_that_jumped_admits_nothing_expires_nothing_and_stays_out_of_the_journal() -> None:
    world = jumped_world()
    engine = make_engine(world)
    await engine.start()
    await engine.submit(Mint(some_id(1), AccountId("alice"), Amount(1)))
    await engine.stop()
    world.clock.wall += MONTH_MS + DAY_MS
    engine = make_engine(world)
    await engine.start()
    assert engine.clock_fault is not None
    with pytest.raises(Unavailable, match=r"CAN-006.*31 days ahead"):
        await engine.submit(Requeue(TaskId(some_id(7))))
    assert isinstance(await engine.submit(Mint(some_id(2), AccountId("alice"), Amount(1))), Accepted)
    engine.undurable_state.queue.expiry_times.schedule(some_id(9), 1)
    before = len(world.disk.batches)
    await Reaper(engine).run_once()
    await ProviderMonitor(engine).run_once()
    assert len(world.disk.batches) == before, "nothing expires"
    assert engine.durable_head.time_ms == NOW_MS
    await engine.stop()
    engine = make_engine(world, accept_clock=True)
    await engine.start()
    assert engine.clock_fault is None
    await engine.submit(RecordTime())
    assert engine.durable_head.time_ms == NOW_MS + MONTH_MS + DAY_MS
    await engine.stop()


async def test_with_a_better_clock_in_the_store_time_goes_on_by_that_one() -> None:
    world = jumped_world()
    world.disk.wall_ms = NOW_MS - DAY_MS
    engine = make_engine(world)
    await engine.start()
    assert engine.clock_fault is not None
    assert engine.durable_head.time_ms == NOW_MS - DAY_MS
    await engine.stop()
