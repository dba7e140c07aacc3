"""The reaper on a real owner: the journal's clock goes on while leases live, and expiry is in bounded commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from tests.core.blocks import SEAL
from tests.core.commands import enqueue_command, some_id
from tests.core.core_driver import YEAR_MS, public
from tests.simulation.world import World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import LIVE_STATES, JobState
from holdfast.core.lease.messages import AckLease, FailLease
from holdfast.core.match.messages import Match
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.engine.loop import Engine
from holdfast.workers.reaper import INTERVAL_MS, Reaper

OAK = provider_id(public(1))


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await world.started()
    await started.submit(Mint(some_id(1), AccountId("alice"), Amount(10_000)))
    await started.submit(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["m"]}}), "eu", 1, 4)
    await started.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await started.submit(Stake(OAK, Amount(10_000), some_id(3)))
    await started.submit(Heartbeat(OAK, 4))
    yield started
    await started.stop()


@pytest.mark.rule("CAN-004")
@pytest.mark.parametrize("late_ms", [0, 3, 10])
async def test_while_leases_live_the_clock_is_journaled_at_least_once_a_second(
    world: World, engine: Engine, late_ms: int
) -> None:
    """However late the machine wakes the reaper, as long as that is not late itself."""
    await engine.submit(enqueue_command(1, max_fee=1, policy=engine.policy))
    await engine.submit(Match())
    (lease,) = engine.undurable_state.leases.by_id.values()
    await engine.submit(AckLease(lease.id, OAK))
    reaper, readings = Reaper(engine), [engine.durable_head.time_ms]
    for _ in range(40):
        world.clock.monotonic += INTERVAL_MS + late_ms
        await reaper.run_once()
        if engine.durable_head.time_ms != readings[-1]:
            readings.append(engine.durable_head.time_ms)
    gaps = [later - earlier for earlier, later in pairwise(readings)]
    assert len(gaps) >= 4
    assert max(gaps) <= 1_000


@pytest.mark.rule("CAN-004")
async def test_without_leases_time_passes_and_nothing_is_written(world: World, engine: Engine) -> None:
    await engine.submit(SEAL)
    before = engine.durable_head
    for _ in range(40):
        world.clock.monotonic += INTERVAL_MS
        await Reaper(engine).run_once()
    assert engine.durable_head == before


@pytest.mark.rule("TTL-001")
async def test_one_pass_ends_all_that_is_over_in_bounded_runs(world: World, engine: Engine) -> None:
    for nonce in range(300):
        await engine.submit(enqueue_command(nonce, max_fee=1, policy=engine.policy))
    world.clock.monotonic += engine.policy.ttl.ai_ms
    await Reaper(engine).run_once()
    jobs = engine.undurable_state.queue.jobs.values()
    assert [job.id for job in jobs if job.state in LIVE_STATES] == []


@pytest.mark.rule("JOB-012", "CAN-006")
async def test_a_job_whose_input_only_one_could_try_ends_by_a_clock_that_is_believed(
    world: World, engine: Engine
) -> None:
    await engine.submit(enqueue_command(1, max_fee=1, policy=engine.policy))
    await engine.submit(Match())
    (lease,) = engine.undurable_state.leases.by_id.values()
    await engine.submit(FailLease(lease.id, OAK, "INVALID_INPUT: line 3"))
    job = engine.undurable_state.queue.jobs[lease.job_id]
    world.clock.monotonic += engine.policy.admission.input_claim_ms
    engine.clock_fault = Refused("CAN-006", "it jumped")
    await Reaper(engine).run_once()
    assert job.state is JobState.QUEUED
    engine.clock_fault = None
    await Reaper(engine).run_once()
    assert (job.state, job.reason) == (JobState.FAILED, "INVALID_INPUT")
