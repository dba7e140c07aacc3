"""The job purger on a real owner: jobs stay their time and are purged in pages, not while a reorg can move money."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.commands import enqueue_command, some_id
from tests.core.core_driver import YEAR_MS, public
from tests.simulation.journal import SimulatedJournal
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import SimulatedFiles, World, evict_final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, LeaseId, TaskId
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import DeclineLease, FailLease
from holdfast.core.match.messages import Match
from holdfast.core.policy import RetryPolicy, TtlPolicy
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.messages import CancelJob, enqueue_key
from holdfast.core.queue.requeue import Requeue
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.recover import rebuild_tables
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal
from holdfast.workers import job_purger
from holdfast.workers.job_purger import JobPurger

STAYS_MS = 7 * 24 * 3_600_000
SMALL_RUNS = msgspec.structs.replace(final_after(1), ttl=TtlPolicy(gc_jobs_max=3), retry=RetryPolicy(failures_max=1))


@pytest.fixture
async def world() -> World:
    return World(SMALL_RUNS)


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await world.started()
    await started.submit(Mint(some_id(1), AccountId("alice"), Amount(1_000)))
    yield started
    await started.stop()


async def enqueued(engine: Engine, nonce: int, *, is_cancelled: bool = True) -> TaskId:
    await engine.submit(enqueue_command(nonce, max_fee=1, policy=engine.policy))
    job = list(engine.undurable_state.queue.jobs)[-1]
    if is_cancelled:
        await engine.submit(CancelJob(job))
    return job


async def settle(engine: Engine) -> None:
    for _ in range(2):
        await engine.submit(SEAL)
    await evict_final(engine)
    await engine.wait_tables()


async def rows(engine: Engine, table: str = "job") -> int:
    await engine.wait_tables()
    return len((await engine.tables.page(table, {}, 0, 100))[0])


@pytest.mark.rule("TTL-002")
@pytest.mark.parametrize(("late_ms", "left"), [(-1, 1), (0, 0)])
async def test_a_tombstone_stays_seven_days_to_the_millisecond(
    world: World, engine: Engine, late_ms: int, left: int
) -> None:
    job = await enqueued(engine, 1, is_cancelled=False)
    world.clock.monotonic += 5_000
    await engine.submit(CancelJob(job))
    ended_ms = engine.undurable_state.queue.jobs[job].ended_ms or 0
    await settle(engine)
    world.clock.monotonic += ended_ms + STAYS_MS + late_ms - engine.now_ms()
    await JobPurger(engine).purge_page()
    assert (await rows(engine), await rows(engine, "spec")) == (left, left)
    found = await queries.job(engine, job)
    assert (found is not None) is bool(left)


@pytest.mark.rule("TTL-002")
async def test_runs_are_bounded_and_what_lives_or_could_still_move_is_left_alone(world: World, engine: Engine) -> None:
    first = await enqueued(engine, 100, is_cancelled=False)
    for nonce in range(7):
        await enqueued(engine, nonce)
    await settle(engine)
    world.clock.monotonic += STAYS_MS - 1_000
    young = await enqueued(engine, 200)
    world.clock.monotonic += 1_000
    restless = await enqueued(engine, 300)
    purger = JobPurger(engine)
    pages = [await purger.purge_page() for _ in range(3)]
    assert (pages, purger.purged) == ([True, True, False], 7)
    assert not await purger.purge_page()  # the tables still show what is gone: it is not purged twice
    assert purger.purged == 7
    await engine.wait_tables()
    await purger.purge_page()
    assert (purger.purged, await rows(engine)) == (7, 3)
    assert [(await queries.job(engine, each)) is not None for each in (first, young, restless)] == [True] * 3
    world.clock.monotonic += STAYS_MS  # old enough by now, but its block is open
    await purger.purge_page()
    assert engine.undurable_state.queue.jobs[restless].state is JobState.CANCELLED
    await settle(engine)
    await purger.run_once()  # to the end of a run that had begun
    await purger.run_once()
    assert await rows(engine) == 1


async def add_provider(world: World, engine: Engine) -> None:
    oak = AccountId("oak")
    await engine.submit(Mint(some_id(2), oak, Amount(10_000)))
    told = ("oak", oak, canonical({"AI": {"models": ["m"]}}), "eu", 1, 1)
    await engine.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await engine.submit(Stake(provider_id(public(1)), Amount(10_000), some_id(3)))


async def lease(world: World, engine: Engine, job: TaskId) -> LeaseId:
    world.clock.monotonic += engine.policy.lease.decline_cooldown_ms
    await engine.submit(Heartbeat(provider_id(public(1)), 1))
    await engine.submit(Match())
    return engine.undurable_state.leases.by_job[job].id


async def declined(world: World, engine: Engine, job: TaskId, times: int) -> None:
    """Given to a provider as often, which never wants it."""
    for _ in range(times):
        await engine.submit(DeclineLease(await lease(world, engine, job), provider_id(public(1))))


@pytest.mark.rule("TTL-002", "ENG-004")
@pytest.mark.parametrize("times", [3, 4, 5])
async def test_leases_of_a_job_are_in_its_row_and_after_a_late_requeue_in_their_own_and_all_go_with_it(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(job_purger, "LEASES_MAX", 2)
    await add_provider(world, engine)
    job = await enqueued(engine, 1, is_cancelled=False)
    await declined(world, engine, job, 2)
    await engine.submit(FailLease(await lease(world, engine, job), provider_id(public(1))))
    await settle(engine)
    assert job not in engine.undurable_state.queue.jobs
    assert await rows(engine, "lease") == 0
    assert [lease.attempt for lease in await queries.attempts(engine, job)] == [0, 1, 2]
    await engine.submit(Requeue(job, await queries.job(engine, job)))
    await declined(world, engine, job, times)
    assert [lease.attempt for lease in await queries.attempts(engine, job)] == list(range(3 + times))
    await engine.submit(CancelJob(job))
    await settle(engine)
    assert [lease.attempt for lease in await queries.attempts(engine, job)] == list(range(3 + times))
    assert await rows(engine, "lease") == times
    await is_equal_to_the_fold(world)
    world.clock.monotonic += STAYS_MS
    await JobPurger(engine).purge_page()
    assert (await rows(engine), await rows(engine, "lease")) == (0, 0)
    await is_equal_to_the_fold(world)


async def is_equal_to_the_fold(world: World) -> None:
    """Of the tables as they grew, and as one goes through all of history at once (`db rebuild`)."""
    journal = FullJournal(SimulatedJournal(world.disk, ignores_lock=True), SimulatedFiles())
    rebuilt = SimulatedTables()
    await rebuild_tables(journal, rebuilt, SimulatedFiles(), world.policy, is_dropped=True)
    for tables in (world.tables, rebuilt):
        found = await check(journal, tables, world.files, world.policy)
        assert [result.message for result in found if not result.is_good] == []
    assert rebuilt.rows == world.tables.rows


@pytest.mark.rule("TTL-002", "JOB-002", "ENG-005")
async def test_what_is_purged_stays_known_and_a_rebuilt_table_has_no_more_than_before(
    world: World, engine: Engine
) -> None:
    await enqueued(engine, 1)
    await settle(engine)
    world.clock.monotonic += STAYS_MS
    await JobPurger(engine).purge_page()
    before = engine.durable_head
    await engine.submit(enqueue_command(1, max_fee=1, policy=engine.policy))
    assert engine.durable_head == before  # the same transaction is the same job for ever
    assert await rows(engine) == 0
    await engine.projector.stop()
    await world.tables.drop()
    await world.projected()
    assert (await world.tables.page("job", {}, 0, 100))[0] == []
    key = enqueue_key(enqueue_command(1, max_fee=1))
    assert key in (await world.tables.find_claims([key])).claims
