"""The proposer: blocks in time, often while something waits, rarely otherwise, and it goes on after a failure."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.core.blocks import PROPOSER, final_after, sign, verify
from tests.core.commands import enqueue_command, some_id
from tests.simulation.journal import Fault
from tests.simulation.world import SimulatedClock, World

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Amount, ChainId, Height, Network, TaskId
from holdfast.core.chain.header import genesis_signed, why_not_next
from holdfast.core.chain.model import signed_of
from holdfast.core.escrow.messages import Charge, Mint, Reserve
from holdfast.core.queue.messages import CancelJob, JobAdmitted
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.workers.proposer import Proposer, is_busy
from holdfast.workers.supervisor import RETRY_MS, run_periodically

pytestmark = pytest.mark.rule("CHN-002")
BUSY_MS, IDLE_MS = 2_000, 60_000
ALICE = AccountId("alice")


class Signer:
    """Signs without a key."""

    public = PROPOSER

    def sign(self, message: bytes) -> bytes:
        return sign(message)


class SteppingClock(SimulatedClock):
    """Sleeping lets time pass; after a number of sleeps the caller is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps_left = 0

    async def sleep(self, ms: int) -> None:
        await super().sleep(ms)
        if self.sleeps_left == 0:
            raise asyncio.CancelledError
        self.sleeps_left -= 1
        self.monotonic += ms


def world_with_stepping_clock(depth: int = 0) -> World:
    world = World(final_after(depth))
    world.clock = SteppingClock()
    return world


def proposer(world: World, engine: Engine) -> Proposer:
    return Proposer(engine, Signer())


def later(world: World, ms: int) -> None:
    world.clock.monotonic += ms


async def job(engine: Engine) -> TaskId:
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    outcome = await engine.submit(enqueue_command(1, policy=engine.policy))
    assert isinstance(outcome, Accepted)
    assert isinstance(outcome.fact, JobAdmitted)
    return outcome.fact.id


async def sealed_at(world: World, engine: Engine, worker: Proposer, every_ms: int) -> bool:
    """Whether a block comes at this time after now, and not a millisecond sooner."""
    before = engine.undurable_state.chain.head.height
    later(world, every_ms - 1)
    await worker.run_once()
    sooner = engine.undurable_state.chain.head.height
    later(world, 1)
    await worker.run_once()
    return (sooner, engine.undurable_state.chain.head.height) == (before, before + 1)


async def test_an_idle_chain_seals_once_a_minute_from_its_start_on() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    worker = proposer(world, engine)
    for _ in range(3):
        assert await sealed_at(world, engine, worker, IDLE_MS)
    assert worker.sealed == 3
    await engine.stop()


async def test_while_a_job_lives_a_block_is_sealed_every_two_seconds_also_empty_ones() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    worker = proposer(world, engine)
    id_ = await job(engine)
    for _ in range(3):
        assert await sealed_at(world, engine, worker, BUSY_MS)
    assert engine.undurable_state.chain.head.tx_count == 0
    await engine.submit(CancelJob(id_))
    assert await sealed_at(world, engine, worker, BUSY_MS)  # the cancellation waits for a block
    assert await sealed_at(world, engine, worker, IDLE_MS)
    await engine.stop()


async def test_money_that_waits_for_finality_keeps_the_chain_going() -> None:
    world = world_with_stepping_clock(depth=2)
    engine = await world.started()
    worker = proposer(world, engine)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.submit(Reserve(some_id(2), ALICE, Amount(10)))
    assert not is_busy(engine.undurable_state)
    await engine.submit(Charge(some_id(2), Height(0), AccountId("bob"), Amount(3)))
    for _ in range(3):
        assert is_busy(engine.undurable_state)
        assert await sealed_at(world, engine, worker, BUSY_MS)
    assert engine.undurable_state.ledger.accounts[AccountId("bob")].available == 3
    assert not is_busy(engine.undurable_state)
    assert await sealed_at(world, engine, worker, IDLE_MS)
    await engine.stop()


async def test_what_comes_to_an_idle_chain_is_in_a_block_within_two_seconds() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    worker = proposer(world, engine)
    later(world, 30_000)
    await job(engine)
    assert isinstance(world.clock, SteppingClock)
    world.clock.sleeps_left = 1
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(worker, world.clock)
    assert max(world.clock.slept) <= BUSY_MS
    assert engine.undurable_state.chain.head.tx_count == 1
    await engine.stop()


async def test_after_a_restart_the_time_is_that_of_the_last_block() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    assert await sealed_at(world, engine, proposer(world, engine), IDLE_MS)
    later(world, 20_000)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.stop()
    world.clock.wall += 500_000  # the machine was off for a while
    engine = await world.started()
    worker = proposer(world, engine)
    await worker.run_once()
    assert engine.undurable_state.chain.head.height == 2
    await worker.run_once()
    assert engine.undurable_state.chain.head.height == 2
    assert await sealed_at(world, engine, worker, IDLE_MS)
    await engine.stop()


async def test_blocks_follow_each_other_under_the_proposers_name() -> None:
    world = world_with_stepping_clock(depth=9)
    engine = await world.started()
    worker = proposer(world, engine)
    for _ in range(4):
        later(world, IDLE_MS)
        await worker.run_once()
    chain_id = ChainId(engine.policy.chain_id)
    chain = [
        genesis_signed(chain_id, Network.DEVELOPMENT),
        *(signed_of(each.block, chain_id) for each in engine.undurable_state.chain.unfinalized.values()),
    ]
    assert [why_not_next(*pair, verify) for pair in pairwise(chain)] == [None] * 4
    assert {each.header.proposer for each in chain[1:]} == {PROPOSER}
    await engine.stop()


async def test_a_node_that_recovers_is_asked_again_and_not_without_a_pause() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    worker = proposer(world, engine)
    assert isinstance(world.clock, SteppingClock)
    world.disk.faults, world.disk.acquire_faults = [Fault.FAIL], 2
    later(world, IDLE_MS)
    world.clock.sleeps_left = 60
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(worker, world.clock)
    assert worker.sealed >= 1
    assert engine.undurable_state.chain.head.height == worker.sealed
    assert RETRY_MS in world.clock.slept
    await engine.stop()


async def test_a_node_that_is_gone_for_good_is_not_hammered() -> None:
    world = world_with_stepping_clock()
    engine = await world.started()
    worker = proposer(world, engine)
    later(world, IDLE_MS)
    await engine.stop()
    with pytest.raises(Unavailable):
        await worker.run_once()
    assert isinstance(world.clock, SteppingClock)
    world.clock.slept.clear()
    world.clock.sleeps_left = 20
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(worker, world.clock)
    assert sum(world.clock.slept) >= 10 * RETRY_MS
