"""The proposer: blocks at their time, often while something waits, seldom else, and a failure is no end."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.core.blocks import PROPOSER, final_after, sign, verify
from tests.core.books import asked, some_id
from tests.simulated.journal import Fault
from tests.simulated.world import SimulatedClock, World

from holdfast.core.chain.blocks import signed_of
from holdfast.core.chain.header import genesis_signed, why_not_next
from holdfast.core.escrow.acts import Charge, Mint, Reserve
from holdfast.core.queue.acts import Cancel, JobAdmitted
from holdfast.core.refusal import Unavailable
from holdfast.core.values import AccountId, Amount, ChainId, Height, TaskId
from holdfast.duties.proposer import RETRY_MS, Proposer, is_busy
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted

pytestmark = pytest.mark.rule("CHN-002")
BUSY_MS, IDLE_MS = 2_000, 60_000
ALICE = AccountId("alice")


class Signer:
    """Signs without a key."""

    public = PROPOSER

    def sign(self, message: bytes) -> bytes:
        return sign(message)


class Watch(SimulatedClock):
    """Sleeping lets time pass; whoever has slept often enough is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps_left = 0

    async def sleep(self, ms: int) -> None:
        await super().sleep(ms)
        if self.sleeps_left == 0:
            raise asyncio.CancelledError
        self.sleeps_left -= 1
        self.monotonic += ms


def watched(depth: int = 0) -> World:
    world = World(final_after(depth))
    world.clock = Watch()
    return world


def proposer(world: World, engine: Engine) -> Proposer:
    return Proposer(engine, world.clock, Signer())


def later(world: World, ms: int) -> None:
    world.clock.monotonic += ms


async def job(engine: Engine) -> TaskId:
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    outcome = await engine.submit(asked(1, policy=engine.policy))
    assert isinstance(outcome, Accepted)
    assert isinstance(outcome.fact, JobAdmitted)
    return outcome.fact.id


async def sealed_at(world: World, engine: Engine, duty: Proposer, every_ms: int) -> bool:
    """Whether a block comes at this time after now, and not a millisecond sooner."""
    before = engine.state.chain.head.height
    later(world, every_ms - 1)
    await duty.look()
    sooner = engine.state.chain.head.height
    later(world, 1)
    await duty.look()
    return (sooner, engine.state.chain.head.height) == (before, before + 1)


async def test_an_idle_chain_seals_once_a_minute_from_its_start_on() -> None:
    world = watched()
    engine = await world.started()
    duty = proposer(world, engine)
    for _ in range(3):
        assert await sealed_at(world, engine, duty, IDLE_MS)
    assert duty.sealed == 3
    await engine.stop()


async def test_while_a_job_lives_a_block_is_sealed_every_two_seconds_also_empty_ones() -> None:
    world = watched()
    engine = await world.started()
    duty = proposer(world, engine)
    id_ = await job(engine)
    for _ in range(3):
        assert await sealed_at(world, engine, duty, BUSY_MS)
    assert engine.state.chain.head.tx_count == 0
    await engine.submit(Cancel(id_))
    assert await sealed_at(world, engine, duty, BUSY_MS)  # the cancellation waits for a block
    assert await sealed_at(world, engine, duty, IDLE_MS)
    await engine.stop()


async def test_money_that_waits_for_finality_keeps_the_chain_going() -> None:
    world = watched(depth=2)
    engine = await world.started()
    duty = proposer(world, engine)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.submit(Reserve(some_id(2), ALICE, Amount(10)))
    assert not is_busy(engine.state)
    await engine.submit(Charge(some_id(2), Height(0), AccountId("bob"), Amount(3)))
    for _ in range(3):
        assert is_busy(engine.state)
        assert await sealed_at(world, engine, duty, BUSY_MS)
    assert engine.state.ledger.accounts[AccountId("bob")].available == 3
    assert not is_busy(engine.state)
    assert await sealed_at(world, engine, duty, IDLE_MS)
    await engine.stop()


async def test_what_comes_to_an_idle_chain_is_in_a_block_within_two_seconds() -> None:
    world = watched()
    engine = await world.started()
    duty = proposer(world, engine)
    later(world, 30_000)
    await job(engine)
    assert isinstance(world.clock, Watch)
    world.clock.sleeps_left = 1
    with pytest.raises(asyncio.CancelledError):
        await duty.run()
    assert max(world.clock.slept) <= BUSY_MS
    assert engine.state.chain.head.tx_count == 1
    await engine.stop()


async def test_after_a_restart_the_time_is_that_of_the_last_block() -> None:
    world = watched()
    engine = await world.started()
    assert await sealed_at(world, engine, proposer(world, engine), IDLE_MS)
    later(world, 20_000)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.stop()
    world.clock.wall += 500_000  # the machine was off for a while
    engine = await world.started()
    duty = proposer(world, engine)
    await duty.look()
    assert engine.state.chain.head.height == 2
    await duty.look()
    assert engine.state.chain.head.height == 2
    assert await sealed_at(world, engine, duty, IDLE_MS)
    await engine.stop()


async def test_blocks_follow_each_other_under_the_proposers_name() -> None:
    world = watched(depth=9)
    engine = await world.started()
    duty = proposer(world, engine)
    for _ in range(4):
        later(world, IDLE_MS)
        await duty.look()
    chain_id = ChainId(engine.policy.chain_id)
    chain = [
        genesis_signed(chain_id),
        *(signed_of(each.block, chain_id) for each in engine.state.chain.recent.values()),
    ]
    assert [why_not_next(*pair, verify) for pair in pairwise(chain)] == [None] * 4
    assert {each.header.proposer for each in chain[1:]} == {PROPOSER}
    await engine.stop()


async def test_a_node_that_recovers_is_asked_again_and_not_without_a_pause() -> None:
    world = watched()
    engine = await world.started()
    duty = proposer(world, engine)
    assert isinstance(world.clock, Watch)
    world.disk.faults, world.disk.own_faults = [Fault.FAIL], 2
    later(world, IDLE_MS)
    world.clock.sleeps_left = 60
    with pytest.raises(asyncio.CancelledError):
        await duty.run()
    assert duty.sealed >= 1
    assert engine.state.chain.head.height == duty.sealed
    assert RETRY_MS in world.clock.slept
    await engine.stop()


async def test_a_node_that_is_gone_for_good_is_not_hammered() -> None:
    world = watched()
    engine = await world.started()
    duty = proposer(world, engine)
    later(world, IDLE_MS)
    await engine.stop()
    with pytest.raises(Unavailable):
        await duty.look()
    assert isinstance(world.clock, Watch)
    world.clock.slept.clear()
    world.clock.sleeps_left = 20
    with pytest.raises(asyncio.CancelledError):
        await duty.run()
    assert sum(world.clock.slept) >= 10 * RETRY_MS
