"""Damage behind a snapshot is found in the background and stops the node; a sound journal does not (ENG-009)."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.commands import some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedClock, SimulatedFiles, World

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import AccountId, Amount, BatchNo
from holdfast.core.escrow.messages import Mint
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus
from holdfast.engine.ownership.settings import OwnerSettings
from holdfast.history.full_journal import FullJournal
from holdfast.workers.journal_scrubber import STEP_BATCHES, JournalScrubber

pytestmark = pytest.mark.rule("ENG-009")
BATCHES = STEP_BATCHES + 5


class ScrubbedWorld(World):
    """A world with an archive beside its journal."""

    def __init__(self) -> None:
        super().__init__()
        self.archive = SimulatedFiles()

    async def filled(self) -> tuple[Engine, JournalScrubber]:
        engine = await self.started()
        for number in range(BATCHES):
            await engine.submit(Mint(some_id(number), AccountId("alice"), Amount(1)))
        return engine, self.scrubber(engine)

    def scrubber(self, engine: Engine, clock: SimulatedClock | None = None) -> JournalScrubber:
        journal = FullJournal(SimulatedJournal(self.disk, ignores_lock=True), self.archive)
        return JournalScrubber(engine, journal, clock or self.clock, hours=24)


async def test_it_runs_at_the_start_and_then_once_a_day() -> None:
    world = ScrubbedWorld()
    engine = await world.started()
    scrubber = world.scrubber(engine)
    assert scrubber.starts_at_once
    assert (scrubber.interval_ms, OwnerSettings().scrub_hours) == (24 * 3_600_000, 24)
    await engine.stop()


async def test_a_sound_journal_is_verified_in_steps_with_rests() -> None:
    world = ScrubbedWorld()
    engine, scrubber = await world.filled()
    world.clock.slept.clear()
    await scrubber.run_once()
    assert (scrubber.verified_until, scrubber.batches) == (BATCHES + 1, BATCHES + 1)
    assert scrubber.finished_ms == world.clock.wall_ms()
    assert len(world.clock.slept) == 1
    assert engine.status is EngineStatus.RUNNING
    await engine.stop()


@pytest.mark.parametrize("at", [0, 1, BATCHES // 2, BATCHES], ids=["first", "second", "middle", "last"])
async def test_a_damaged_batch_stops_the_node_and_is_named(at: int) -> None:
    world = ScrubbedWorld()
    engine, scrubber = await world.filled()
    batch = world.disk.batches[at]
    world.disk.batches[at] = msgspec.structs.replace(batch, body=b"\x00" + batch.body[1:])
    await scrubber.run_once()
    with pytest.raises(Corrupt, match=rf"batch {batch.number} does not match"):
        await engine.wait_ended()
    assert scrubber.finished_ms == 0
    await engine.stop()


@pytest.mark.parametrize("at", [1, BATCHES - 1], ids=["second", "last but one"])
async def test_a_batch_that_is_gone_stops_the_node(at: int) -> None:
    world = ScrubbedWorld()
    engine, scrubber = await world.filled()
    del world.disk.batches[at]
    await scrubber.run_once()
    with pytest.raises(Corrupt, match=rf"batch {at + 2} does not follow"):
        await engine.wait_ended()
    assert scrubber.finished_ms == 0
    await engine.stop()


async def test_batches_that_are_trimmed_meanwhile_are_not_missed() -> None:
    world = ScrubbedWorld()
    engine, _ = await world.filled()

    class TrimmingClock(SimulatedClock):
        """Trims while the scrubber rests."""

        async def sleep(self, ms: int) -> None:
            await SimulatedJournal(world.disk).trim(BatchNo(STEP_BATCHES + 2))

    scrubber = world.scrubber(engine, TrimmingClock())
    await scrubber.run_once()
    assert engine.status is EngineStatus.RUNNING
    assert scrubber.verified_until == BATCHES + 1
    await engine.stop()


async def test_a_damaged_archive_is_an_alarm_and_stops_nothing() -> None:
    world = ScrubbedWorld()
    engine, scrubber = await world.filled()
    await scrubber._journal.trim(BatchNo(10))
    (name,) = world.archive.files
    world.archive.files[name] = world.archive.files[name][:-1]
    await world.scrubber(engine).run_once()
    fresh = world.scrubber(engine)
    await fresh.run_once()
    assert fresh.archive_faults == 1
    assert engine.status is EngineStatus.RUNNING
    await engine.stop()
