"""The sexton on a real owner: tombstones stay their time, go in lots with their rows, not while money can move."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.books import asked, some_id
from tests.core.ways import YEAR_MS, public
from tests.simulated.world import World

from holdfast.core.canon import canonical
from holdfast.core.escrow.acts import Mint
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import DeclineLease
from holdfast.core.match.decide import Match
from holdfast.core.policy import TtlPolicy
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Cancel, enqueue_key
from holdfast.core.values import AccountId, Amount, TaskId
from holdfast.duties import sexton as duty
from holdfast.duties.sexton import Sexton
from holdfast.engine import read
from holdfast.engine.loop import Engine

STAYS_MS = 7 * 24 * 3_600_000
SMALL_LOTS = msgspec.structs.replace(final_after(1), ttl=TtlPolicy(collect_jobs_max=3))


@pytest.fixture
async def world() -> World:
    return World(SMALL_LOTS)


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await world.started()
    await started.submit(Mint(some_id(1), AccountId("alice"), Amount(1_000)))
    yield started
    await started.stop()


async def taken_in(engine: Engine, nonce: int, *, is_cancelled: bool = True) -> TaskId:
    await engine.submit(asked(nonce, max_fee=1, policy=engine.policy))
    job = next(reversed(engine.state.queue.jobs))
    if is_cancelled:
        await engine.submit(Cancel(job))
    return job


async def settled(engine: Engine) -> None:
    for _ in range(2):
        await engine.submit(SEAL)
    await engine.projector.drain()


async def rows(engine: Engine, table: str = "job") -> int:
    await engine.projector.drain()
    return len((await engine.tables.page(table, {}, 0, 100))[0])


@pytest.mark.rule("TTL-002")
@pytest.mark.parametrize(("late_ms", "left"), [(-1, 1), (0, 0)])
async def test_a_tombstone_stays_seven_days_to_the_millisecond(
    world: World, engine: Engine, late_ms: int, left: int
) -> None:
    job = await taken_in(engine, 1, is_cancelled=False)
    world.clock.monotonic += 5_000
    await engine.submit(Cancel(job))
    ended_ms = engine.state.queue.jobs[job].ended_ms or 0
    await settled(engine)
    world.clock.monotonic += ended_ms + STAYS_MS + late_ms - engine.now_ms()
    await Sexton(engine, world.clock).look()
    assert (await rows(engine), await rows(engine, "spec")) == (left, left)
    found = await read.job(engine, job)
    assert (found is not None) is bool(left)


@pytest.mark.rule("TTL-002")
async def test_lots_are_bounded_and_what_lives_or_could_still_move_is_left_alone(world: World, engine: Engine) -> None:
    first = await taken_in(engine, 100, is_cancelled=False)
    for nonce in range(7):
        await taken_in(engine, nonce)
    await settled(engine)
    world.clock.monotonic += STAYS_MS - 1_000
    young = await taken_in(engine, 200)
    world.clock.monotonic += 1_000
    restless = await taken_in(engine, 300)
    sexton = Sexton(engine, world.clock)
    lots = [await sexton.look() for _ in range(3)]
    assert (lots, sexton.buried) == ([True, True, False], 7)
    await sexton.look()
    assert (sexton.buried, await rows(engine)) == (7, 3)
    assert [(await read.job(engine, each)) is not None for each in (first, young, restless)] == [True] * 3
    world.clock.monotonic += STAYS_MS  # old enough by now, but its block is open
    await sexton.look()
    assert engine.state.queue.jobs[restless].state is JobState.CANCELLED
    await settled(engine)
    while await sexton.look():
        pass
    assert await rows(engine) == 1


async def declined(world: World, engine: Engine, job: TaskId, times: int) -> None:
    """Given to a provider as often, which never wants it."""
    oak = AccountId("oak")
    await engine.submit(Mint(some_id(2), oak, Amount(10_000)))
    told = ("oak", oak, canonical({"AI": {"models": ["m"]}}), "eu", 1, 1)
    await engine.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await engine.submit(Stake(provider_id(public(1)), Amount(10_000), some_id(3)))
    for _ in range(times):
        await engine.submit(Beat(provider_id(public(1)), 1))
        await engine.submit(Match())
        lease = engine.state.leases.by_job[job]
        await engine.submit(DeclineLease(lease.id, lease.provider_id))
        world.clock.monotonic += engine.policy.lease.decline_cooldown_ms


@pytest.mark.rule("TTL-002")
@pytest.mark.parametrize("times", [3, 4, 5])
async def test_all_leases_of_a_job_go_with_it_however_often_it_was_declined(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(duty, "LEASES_MAX", 2)
    job = await taken_in(engine, 1, is_cancelled=False)
    await declined(world, engine, job, times)
    await engine.submit(Cancel(job))
    await settled(engine)
    assert await rows(engine, "lease") == times
    world.clock.monotonic += STAYS_MS
    await Sexton(engine, world.clock).look()
    assert (await rows(engine), await rows(engine, "lease")) == (0, 0)


@pytest.mark.rule("TTL-002", "JOB-002", "ENG-005")
async def test_what_is_buried_stays_known_and_a_rebuilt_table_has_no_more_than_before(
    world: World, engine: Engine
) -> None:
    await taken_in(engine, 1)
    await settled(engine)
    world.clock.monotonic += STAYS_MS
    await Sexton(engine, world.clock).look()
    before = engine.durable
    await engine.submit(asked(1, max_fee=1, policy=engine.policy))
    assert engine.durable == before  # the same transaction is the same job for ever
    assert await rows(engine) == 0
    await world.tables.drop()
    await world.recovered()
    assert (await world.tables.page("job", {}, 0, 100))[0] == []
    assert await world.tables.find_claim(enqueue_key(asked(1, max_fee=1))) is not None
