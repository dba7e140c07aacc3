"""The projector killed at any step, beside another one, and behind: the tables miss nothing and repeat nothing."""

from __future__ import annotations

import asyncio

import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.commands import enqueue_command, some_id
from tests.engine.ended_jobs import cancelled_job
from tests.simulation.journal import SimulatedJournal
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import World, drop_claims, small_batches

from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.escrow.messages import Mint, Reserve
from holdfast.core.queue.messages import CancelJob, JobAdmitted
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.follower import Follower
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.engine.projection import projector as projecting
from holdfast.engine.projection.host import ProjectorHost, ProjectorTask
from holdfast.engine.snapshots import snapshot_files

ALICE = AccountId("alice")
WITHIN_S, RETRIES_MAX = 5, 100
"""Bounds of each wait, which takes milliseconds and a few retries: a projector may fail in a circle for ever, and as a
task it swallows the timeout of pytest."""
pytestmark = pytest.mark.rule("ENG-004")


async def lived(world: World) -> Engine:
    """Money, reservations, jobs that wait and that are final; the tables hold nothing of it."""
    engine = await world.started()
    await engine.projector.stop()
    await engine.submit(Mint(some_id(1), ALICE, Amount(1_000)))
    for number in range(2, 8):
        await engine.submit(Reserve(some_id(number), ALICE, Amount(5)))
        outcome = await engine.submit(enqueue_command(number, max_fee=1, policy=world.policy))
        assert isinstance(outcome, Accepted)
        assert isinstance(outcome.fact, JobAdmitted)
        if number % 2:
            await engine.submit(CancelJob(outcome.fact.id))
            await engine.submit(SEAL)
    return engine


def projector_of(world: World) -> ProjectorTask:
    journal = SimulatedJournal(world.disk, ignores_lock=True)
    return ProjectorTask(journal, world.tables, world.files, world.clock, world.policy)


async def wait_until_written(world: World, end: JournalHead, *projectors: ProjectorHost) -> None:
    retries = world.clock.slept
    before = len(retries)
    async with asyncio.timeout(WITHIN_S):
        while world.tables.at != end and len(retries) < before + RETRIES_MAX:
            for projector in projectors:
                projector.request_flush()
            await asyncio.sleep(0)
    assert world.tables.at == end, f"{world.tables.at.number} of {end.number} batches after {RETRIES_MAX} retries"


async def catch_up(world: World, projector: ProjectorTask, end: JournalHead) -> None:
    projector.start()
    await wait_until_written(world, end, projector)
    await projector.stop()


async def test_a_projector_killed_at_any_step_goes_on_from_its_checkpoint() -> None:
    world = World(small_batches(events_max=2, rows_max=3))
    engine = await lived(world)
    whole = World(world.policy)
    whole.disk.batches = world.disk.batches
    await whole.projected()
    for steps in range(60):
        world.tables = SimulatedTables()
        killed = projector_of(world)
        killed.start()
        killed.request_flush()
        for _ in range(steps):
            await asyncio.sleep(0)
        await killed.stop()
        await catch_up(world, projector_of(world), engine.durable_head)
        assert (world.tables.rows, world.tables.claims) == (whole.tables.rows, whole.tables.claims)
    world.tables = whole.tables
    await engine.stop()


async def test_two_projectors_beside_each_other_write_every_row_once() -> None:
    """One that does not know yet that its node is gone must not write old rows over new ones."""
    world = World(small_batches(events_max=1, rows_max=2))
    engine = await lived(world)
    whole = World(world.policy)
    whole.disk.batches = world.disk.batches
    await whole.projected()
    first, second = projector_of(world), projector_of(world)
    for projector in (first, second):
        projector.start()
    await wait_until_written(world, engine.durable_head, first, second)
    for projector in (first, second):
        await projector.stop()
    assert (world.tables.rows, world.tables.claims) == (whole.tables.rows, whole.tables.claims)
    await engine.stop()


async def test_tables_that_lost_their_newest_rows_are_written_again() -> None:
    """As after a crash of a server that syncs the tables later: the checkpoint is in an earlier place."""
    world = World(small_batches(events_max=1, rows_max=2))
    engine = await lived(world)
    engine.projector.start()
    await engine.wait_tables()
    tables = world.tables
    before = {table: dict(rows) for table, rows in tables.rows.items()}, dict(tables.claims), tables.at
    await engine.submit(Mint(some_id(50), ALICE, Amount(1)))
    await engine.wait_tables()
    world.tables.rows, world.tables.claims, world.tables.at = before
    await engine.submit(Mint(some_id(51), ALICE, Amount(1)))
    await wait_until_written(world, engine.durable_head, engine.projector)
    assert b"m" + some_id(50) in world.tables.claims
    await engine.stop()


@pytest.mark.rule("ENG-003")
async def test_a_projector_writes_a_snapshot_when_enough_has_happened_and_not_before() -> None:
    world = World(small_batches(snapshot_every_events=10))
    for life in range(4):
        engine = await world.started()
        for number in range(4):
            await engine.submit(Mint(some_id(100 * life + number), ALICE, Amount(1)))
        await engine.wait_tables()
        await engine.stop()
        assert len(world.files.files) == (0, 1, 1, 2)[life]  # five events in each life
    state, tip = await snapshot_files.load_newest(world.files, engine.journal, world.policy, 10**9)
    assert (tip.last, tip) == (20, engine.durable_head)
    assert digest(state) == digest(engine.undurable_state)


@pytest.mark.rule("ENG-003")
async def test_a_snapshot_that_is_due_does_not_wait_until_no_more_batches_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projecting, "FLUSH_MS", 60_000)
    monkeypatch.setattr(projecting, "FOLD_MS", 1)
    world = World(small_batches(rows_max=1, snapshot_every_events=3))
    engine = await world.started()
    for number in range(3):
        await engine.submit(Mint(some_id(number), ALICE, Amount(1)))
    async with asyncio.timeout(10):
        while not world.files.files:
            await asyncio.sleep(0)
    await engine.stop()


@pytest.mark.parametrize("is_standby", [False, True])
async def test_a_read_after_a_start_waits_until_the_tables_have_reached_the_eviction(is_standby: bool) -> None:
    world = World(final_after(0))
    engine, _, job = await cancelled_job(world, ALICE)
    await engine.stop()
    world.tables = SimulatedTables()  # they were lost, and are written again
    source: Engine | Follower
    if is_standby:
        source = Follower(SimulatedJournal(world.disk), world.tables, world.files, world.clock, world.policy)
        await source.load()
    else:
        source = world.engine()
        await source.start()
        await source.projector.stop()
    reading = asyncio.create_task(queries.job(source, job.id))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not reading.done()
    await world.projected()
    if isinstance(source, Engine):
        source.projector.start()
    found = await reading
    assert found is not None
    assert found.id == job.id
    if isinstance(source, Engine):
        await source.stop()


@pytest.mark.rule("ENG-005")
async def test_a_claim_stays_in_memory_before_the_tables_hold_it() -> None:
    world = World(small_batches())
    engine = await world.started()
    await engine.wait_tables()
    await engine.projector.stop()
    mints = [Mint(some_id(n), ALICE, Amount(1)) for n in range(1, 60)]
    for mint in mints:
        await engine.submit(mint)
    claims = engine.undurable_state.claims
    assert len(claims.recent) + len(claims.older) == len(mints)
    assert all(isinstance(each, Accepted) and each.is_repeat for each in await engine.submit_many(mints))
    engine.projector.start()
    await drop_claims(engine)
    assert await engine.submit(mints[0]) == Accepted(EventNo(2), is_repeat=True)
    await engine.stop()
