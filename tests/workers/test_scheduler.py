"""The worker that fires schedules, on a simulated journal and clock: late, crashed, doubled, and by a wrong clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.core.commands import some_id
from tests.simulation.journal import Fault
from tests.simulation.world import World

from holdfast.core import journal_codec
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import AccountId, Amount, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.queue.messages import JobAdmitted
from holdfast.core.schedule.messages import CreateSchedule, FireSchedule, ScheduleFired
from holdfast.core.schedule.model import Schedule
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.workers.scheduler import AT_ONCE_MAX, Scheduler

ALICE = AccountId("alice")
MINUTE_MS = 60_000
PAYLOAD = canonical({"kind": "AI", "spec": {"model": "m", "prompt": "hi"}})
LARGE = canonical({"kind": "AI", "spec": {"model": "m", "prompt": "large " * 1_500}})
"""Beyond what an event holds itself: the payload of its job is a row beside the batch (ENG-007)."""


@pytest.fixture
async def world() -> World:
    return World()


async def begin(world: World) -> Engine:
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(1_000_000)))
    return engine


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await begin(world)
    yield started
    await started.stop()


async def add_schedule(engine: Engine, name: str = "often", payload: bytes = PAYLOAD) -> Schedule:
    outcome = await engine.submit(CreateSchedule(ALICE, name, Tier.FREE, payload, 10, interval_ms=MINUTE_MS))
    assert isinstance(outcome, Accepted), outcome
    return schedule_of(engine, name)


def schedule_of(engine: Engine, name: str = "often") -> Schedule:
    schedules = engine.undurable_state.schedules
    return schedules.by_id[schedules.by_name[ALICE][name]]


def firings(world: World) -> list[tuple[bytes, int]]:
    """Every firing in the journal: its batch has exactly its job."""
    found: list[tuple[bytes, int]] = []
    for batch in world.disk.batches:
        events = journal_codec.unpack(batch)
        fired = [event for event in events if isinstance(event, ScheduleFired)]
        assert [event.task_id for event in fired] == [event.id for event in events if isinstance(event, JobAdmitted)]
        found += [(event.id, event.due_ms) for event in fired]
    return found


@pytest.mark.rule("JOB-014")
async def test_a_schedule_that_is_due_fires_once_and_an_idle_run_writes_nothing(world: World, engine: Engine) -> None:
    scheduler, schedule = Scheduler(engine), await add_schedule(engine)
    due_ms, batches = schedule.next_ms, len(world.disk.batches)
    await scheduler.run_once()
    assert len(world.disk.batches) == batches
    world.clock.monotonic += MINUTE_MS
    await scheduler.run_once()
    await scheduler.run_once()
    assert (firings(world), scheduler.fired) == ([(schedule.id, due_ms)], 1)


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize("payload", [PAYLOAD, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR, Fault.FORGET])
async def test_a_crash_at_the_firing_leaves_firing_and_job_or_neither_and_the_next_owner_fires_once(
    world: World, fault: Fault, payload: bytes
) -> None:
    engine = await begin(world)
    schedule = await add_schedule(engine, payload=payload)
    due_ms = schedule.next_ms
    world.clock.monotonic += MINUTE_MS
    world.disk.faults = [fault]
    with suppress(Unavailable):
        await Scheduler(engine).run_once()
    with suppress(Unavailable):
        await engine.stop()
    world.disk.faults = []
    world.clock.wall += MINUTE_MS  # a new owner begins with the wall's time
    successor = await world.started()
    await Scheduler(successor).run_once()
    assert firings(world) == [(schedule.id, due_ms)]
    assert schedule_of(successor).fired == 1
    assert len(successor.undurable_state.queue.jobs) == 1
    await successor.stop()
    assert digest(await world.recovered()) == digest(successor.undurable_state)


@pytest.mark.rule("JOB-014")
async def test_after_an_outage_the_next_owner_fires_what_was_missed_once(world: World) -> None:
    engine = await begin(world)
    schedule = await add_schedule(engine)
    await engine.stop()
    world.clock.wall += 100 * MINUTE_MS
    successor = await world.started()
    await Scheduler(successor).run_once()
    assert len(firings(world)) == 1
    later = schedule_of(successor)
    assert later.firings[-1].missed == 99
    assert later.next_ms == schedule.next_ms + 100 * MINUTE_MS
    await successor.stop()


@pytest.mark.rule("JOB-014")
async def test_two_schedulers_of_one_owner_fire_once(world: World, engine: Engine) -> None:
    schedule = await add_schedule(engine)
    due_ms = schedule.next_ms
    world.clock.monotonic += MINUTE_MS
    first = await engine.submit(FireSchedule(schedule.id, due_ms))
    second = await engine.submit(FireSchedule(schedule.id, due_ms))
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (first.is_repeat, second.is_repeat) == (False, True)
    assert firings(world) == [(schedule.id, due_ms)]


@pytest.mark.rule("JOB-014")
async def test_all_schedules_of_one_time_fire_however_many_they_are(world: World, engine: Engine) -> None:
    schedules = AT_ONCE_MAX + 5
    for number in range(schedules):
        caller, name = AccountId(f"caller-{number // 50}"), f"s{number}"
        await engine.submit(CreateSchedule(caller, name, Tier.FREE, PAYLOAD, 10, interval_ms=MINUTE_MS))
    world.clock.monotonic += MINUTE_MS
    scheduler = Scheduler(engine)
    await scheduler.run_once()
    assert scheduler.fired == schedules
    records = engine.undurable_state.schedules.by_id.values()
    assert all((record.refused, record.firings[-1].refusal) == (1, "InsufficientFunds") for record in records)


@pytest.mark.rule("CAN-006", "JOB-014")
async def test_nothing_fires_by_a_clock_that_is_not_believed(world: World, engine: Engine) -> None:
    schedule = await add_schedule(engine)
    world.clock.monotonic += MINUTE_MS
    engine.clock_fault = Refused("CAN-006", "the clock is wrong")
    await Scheduler(engine).run_once()
    with pytest.raises(Unavailable):
        await engine.submit(FireSchedule(schedule.id, schedule.next_ms))
    assert not firings(world)
    engine.clock_fault = None
