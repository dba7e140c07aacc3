"""An owner that stood still acquires ownership again first; one that hangs is silent; one that was replaced ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.core.commands import some_id
from tests.simulation.journal import Fault, SimulatedJournal
from tests.simulation.world import SimulatedClock, World

from holdfast.core.base.errors import Fenced, Unavailable
from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.journal_codec import unpack
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.ownership.heartbeat import OwnerHeartbeat
from holdfast.engine.ownership.owner_watch import OwnerWatch
from holdfast.engine.ownership.settings import OwnerSettings, why_not
from holdfast.engine.queries.node import Ping

SETTINGS = OwnerSettings()


class SteadyClock(SimulatedClock):
    """Sleeping ends when the test says so, so that a heartbeat comes only when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = asyncio.Event()

    async def sleep(self, ms: int) -> None:
        await self.woken.wait()
        await asyncio.sleep(0)

    def pass_ms(self, ms: int) -> None:
        self.monotonic += ms
        self.wall += ms


class PassingWatch(SimulatedClock):
    """Sleeping takes as long as it says, and one sleep may take longer."""

    def __init__(self, *longer_ms: int) -> None:
        super().__init__()
        self._longer_ms = list(longer_ms)

    async def sleep(self, ms: int) -> None:
        self.monotonic += ms + (self._longer_ms.pop(0) if self._longer_ms else 0)
        await asyncio.sleep(0)


def mint(number: int) -> Mint:
    return Mint(some_id(number), AccountId("alice"), Amount(1))


def make_engine(world: World, *, ignores_lock: bool = False) -> Engine:
    journal = SimulatedJournal(world.disk, ignores_lock=ignores_lock)
    return Engine(journal, world.tables, world.files, world.clock, world.policy, settings=SETTINGS)


async def running(engine: Engine) -> None:
    async with asyncio.timeout(5):
        while engine.status is not EngineStatus.RUNNING:
            await asyncio.sleep(0)


def terms(world: World) -> list[OwnershipTaken]:
    return [event for batch in world.disk.batches for event in unpack(batch) if isinstance(event, OwnershipTaken)]


@pytest.mark.rule("LEA-008", "ENG-008")
@pytest.mark.parametrize(("ms", "count"), [(SETTINGS.pause_ms, 1), (SETTINGS.pause_ms + 1, 2)])
async def test_an_owner_that_stood_still_takes_ownership_before_it_decides(ms: int, count: int) -> None:
    world = World()
    world.clock = clock = SteadyClock()
    engine = make_engine(world)
    await engine.start()
    await engine.submit(mint(1))
    before_ms = engine.durable_head.time_ms
    clock.pass_ms(ms)
    if count == 2:
        with pytest.raises(Unavailable):  # nothing is decided or answered by an owner of before
            await engine.submit(mint(2))
        with pytest.raises(Unavailable):
            await engine.query_durable(Ping())
        await running(engine)
        assert terms(world)[-1].outage_ms == ms
        assert terms(world)[-1].at_ms == before_ms + ms
    outcome = await engine.submit(mint(2))
    assert isinstance(outcome, Accepted)
    assert not outcome.is_repeat
    assert [each.term for each in terms(world)] == list(range(1, count + 1))
    await engine.stop()


@pytest.mark.rule("ENG-008")
async def test_what_waited_before_a_pause_is_decided_after_it_or_refused_as_unknown() -> None:
    world = World()
    world.clock = clock = SteadyClock()
    engine = make_engine(world)
    await engine.start()
    world.disk.faults = [Fault.HANG]
    first = asyncio.create_task(engine.submit(mint(1)))
    await asyncio.sleep(0)
    second = asyncio.create_task(engine.submit(mint(2)))
    for _ in range(5):
        await asyncio.sleep(0)
    clock.pass_ms(SETTINGS.pause_ms + 1)
    with pytest.raises(Unavailable):
        await engine.submit(mint(3))
    world.disk.release.set()
    assert isinstance(await first, Accepted), "it was durable: the append of before is heard out"
    with pytest.raises(Unavailable, match="stood still"):
        await second
    await running(engine)
    assert [each.term for each in terms(world)] == [1, 2]
    assert isinstance(await engine.submit(mint(2)), Accepted)
    await engine.stop()


@pytest.mark.rule("ENG-008")
async def test_a_woken_owner_that_was_replaced_has_written_nothing_and_ends() -> None:
    world = World()
    world.clock = clock = SteadyClock()
    stopped = make_engine(world)
    await stopped.start()
    await stopped.submit(mint(1))
    successor = world.engine()  # it ended the first one's session and took the lock
    await successor.start()
    await successor.submit(mint(2))
    batches = len(world.disk.batches)
    clock.pass_ms(SETTINGS.pause_ms + 1)
    with pytest.raises(Unavailable):
        await stopped.submit(mint(3))
    with pytest.raises(Fenced):
        await stopped.wait_ended()
    with pytest.raises(Fenced):
        await stopped.query_durable(Ping())
    assert len(world.disk.batches) == batches
    for engine in (stopped, successor):
        await engine.stop()


@pytest.mark.rule("ENG-008")
async def test_an_idle_owner_whose_lock_was_taken_learns_it_from_its_heartbeat() -> None:
    world = World()
    world.clock = clock = SteadyClock()
    replaced = make_engine(world)
    await replaced.start()
    successor = world.engine()
    await successor.start()
    clock.pass_ms(SETTINGS.heartbeat_ms)
    clock.woken.set()
    with pytest.raises(Fenced, match="another node owns"):
        await asyncio.wait_for(replaced.wait_ended(), 5)
    for engine in (replaced, successor):
        await engine.stop()


@pytest.mark.rule("ENG-008")
async def test_no_heartbeat_is_written_while_an_append_hangs() -> None:
    world, lost = World(), list[Unavailable]()
    journal = SimulatedJournal(world.disk)
    await journal.acquire()
    heartbeat = OwnerHeartbeat(journal, world.clock, SETTINGS, lost.append)
    with heartbeat.appending():
        world.clock.monotonic += SETTINGS.heartbeat_ms - 1
        await heartbeat.beat(SETTINGS.heartbeat_ms)
        assert world.disk.beats == 1
        world.clock.monotonic += 1
        await heartbeat.beat(SETTINGS.heartbeat_ms)
        assert world.disk.beats == 1
    await heartbeat.beat(SETTINGS.heartbeat_ms)
    assert world.disk.beats == 2
    assert lost == []


@pytest.mark.rule("ENG-008")
async def test_a_silent_owner_is_replaced_when_the_time_is_over_and_not_before() -> None:
    world = World()
    owner, other = SimulatedJournal(world.disk), SimulatedJournal(world.disk)
    await owner.acquire()
    clock = PassingWatch()
    watch = OwnerWatch(other, clock, SETTINGS)
    watching = asyncio.create_task(watch.replace_hung_owner())
    for _ in range(30):  # an owner that beats is left alone
        await owner.heartbeat()
        await asyncio.sleep(0)
    assert not watching.done()
    silent_ms = clock.monotonic
    await asyncio.wait_for(watching, 5)
    assert abs(clock.monotonic - silent_ms - SETTINGS.takeover_ms) <= SETTINGS.heartbeat_ms
    assert world.disk.owner is None


@pytest.mark.rule("ENG-008")
async def test_what_the_watch_slept_through_itself_does_not_count() -> None:
    world = World()
    owner = SimulatedJournal(world.disk)
    await owner.acquire()
    watch = OwnerWatch(SimulatedJournal(world.disk), PassingWatch(0, 3_600_000, 3_600_000), SETTINGS)
    watching = asyncio.create_task(watch.replace_hung_owner())
    for _ in range(5):
        await asyncio.sleep(0)
    assert watch.silent_ms < SETTINGS.takeover_ms
    assert world.disk.owner is owner
    watching.cancel()


@pytest.mark.rule("ENG-008")
async def test_where_the_owner_cannot_be_ended_the_watch_alarms_and_stays() -> None:
    world = World()
    await SimulatedJournal(world.disk).acquire()
    world.disk.cannot_evict = True
    watch = OwnerWatch(SimulatedJournal(world.disk), PassingWatch(), SETTINGS)
    watching = asyncio.create_task(watch.replace_hung_owner())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not watching.done()
    assert watch.silent_ms > SETTINGS.takeover_ms, "its metric goes on telling"
    world.disk.cannot_evict = False
    await asyncio.wait_for(watching, 5)


def test_settings_that_would_replace_a_sound_owner_are_refused() -> None:
    assert why_not(SETTINGS) is None
    assert why_not(OwnerSettings(heartbeat_ms=1_000, pause_ms=2_000, takeover_ms=2_000)) is None
    assert "pause_ms" in str(why_not(OwnerSettings(heartbeat_ms=1_000, pause_ms=1_999)))
    assert "takeover_ms" in str(why_not(OwnerSettings(pause_ms=5_000, takeover_ms=4_999)))
