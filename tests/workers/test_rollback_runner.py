"""The rollback runner: to the end in steps, with other commands in between, and after a crash at any of them."""

from __future__ import annotations

import asyncio

import pytest
from tests.core.blocks import PROPOSER, SEAL, final_after, sign
from tests.core.chain.test_rollback_steps import facts
from tests.core.commands import enqueue_command, some_id
from tests.simulation.journal import Fault
from tests.simulation.world import World, stop_engine

from holdfast.core import journal_codec
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Amount, Height
from holdfast.core.chain.messages import ContinueRollback, RollBackBlocks, RollbackFinished, RollbackStarted
from holdfast.core.escrow.messages import Mint
from holdfast.core.queue.messages import CancelJob, JobAdmitted
from holdfast.core.state import State
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.queries.chain import GetChainHead, RollbackProgress
from holdfast.engine.snapshots import snapshot_files
from holdfast.workers.proposer import Proposer
from holdfast.workers.rollback_runner import RollbackRunner

pytestmark = pytest.mark.rule("CHN-003", "CHN-004")
BLOCKS, JOBS, TARGET = 4, 5, 1
STEP = ContinueRollback(limit=3)


class Signer:
    """Signs without a key."""

    public = PROPOSER

    def sign(self, message: bytes) -> bytes:
        return sign(message)


async def filled(world: World) -> Engine:
    """Blocks of jobs; every second one was cancelled, and its refund is pending."""
    engine = await world.started()
    await engine.submit(Mint(some_id(1), AccountId("alice"), Amount(1_000)))
    for nonce in range(BLOCKS * JOBS):
        outcome = await engine.submit(enqueue_command(nonce, policy=world.policy))
        assert isinstance(outcome, Accepted)
        assert isinstance(outcome.fact, JobAdmitted)
        if nonce % 2:
            await engine.submit(CancelJob(outcome.fact.id))
        if nonce % JOBS == JOBS - 1:
            await engine.submit(SEAL)
    return engine


async def start(engine: Engine) -> None:
    outcome = await engine.submit(RollBackBlocks(Height(TARGET), at_once_max=0))
    assert isinstance(outcome, Accepted)


async def run_to_the_end(engine: Engine) -> State:
    await RollbackRunner(engine, STEP).run_once()
    assert engine.undurable_state.chain.rollback is None
    return engine.undurable_state


async def expected() -> tuple[bytes, int]:
    """Where a rollback without a fault ends, and after how many steps."""
    world = World(final_after(50))
    engine = await filled(world)
    await start(engine)
    before = engine.durable_head.number
    state = await run_to_the_end(engine)
    await stop_engine(engine)
    return facts_without_owner(state), engine.durable_head.number - before


def facts_without_owner(state: State) -> bytes:
    owner, state.owner = state.owner, None
    digest = facts(state)
    state.owner = owner
    return digest


@pytest.mark.rule("CHN-003", "CHN-004", "ENG-003")
@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_after_a_crash_at_any_step_the_next_owner_finishes_the_rollback(is_snapshot: bool) -> None:
    end, steps = await expected()
    assert steps > 10
    for cut in range(steps + 1):
        world = World(final_after(50))
        engine = await filled(world)
        await start(engine)
        for _ in range(cut):
            await engine.submit(STEP)
        await engine.projector.stop()  # the node is gone: only the journal is left
        if is_snapshot:
            await snapshot_files.make(world.files, engine.journal, world.policy)
        after = await world.started()
        assert (after.undurable_state.chain.rollback is None) == (cut == steps)
        assert facts_without_owner(await run_to_the_end(after)) == end
        await stop_engine(after)


@pytest.mark.rule("CHN-003", "ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR])
async def test_a_step_that_the_journal_did_not_confirm_is_done_again(fault: Fault) -> None:
    end, steps = await expected()
    for cut in range(steps):
        world = World(final_after(50))
        engine = await filled(world)
        await start(engine)
        world.disk.faults = [*([None] * cut), fault]
        runner = RollbackRunner(engine, STEP)
        with pytest.raises(Unavailable):
            await runner.run_once()
        while engine.status is not EngineStatus.RUNNING:
            await asyncio.sleep(0)
        assert facts_without_owner(await run_to_the_end(engine)) == end
        await stop_engine(engine)


async def test_other_commands_are_decided_between_the_steps() -> None:
    world = World(final_after(50))
    engine = await filled(world)
    await start(engine)
    running, numbers = asyncio.create_task(RollbackRunner(engine, STEP).run_once()), []
    nonce = 1_000
    while not running.done():
        nonce += 1
        outcome = await engine.submit(enqueue_command(nonce, policy=world.policy, max_fee=1))
        assert isinstance(outcome, Accepted)
        numbers.append(outcome.event)
    assert len(numbers) > 5
    chain = engine.undurable_state.chain
    later = [tx.number for tx in chain.open.txs if tx.number >= numbers[0]]
    assert later == numbers
    await stop_engine(engine)


@pytest.mark.rule("CHN-002", "CHN-004")
async def test_no_block_is_sealed_before_the_end_and_one_is_due_afterwards() -> None:
    world = World(final_after(50))
    engine = await filled(world)
    proposer = Proposer(engine, Signer())
    await start(engine)
    world.clock.monotonic += 60_000
    await proposer.run_once()
    assert (proposer.sealed, engine.undurable_state.chain.head.height) == (0, TARGET)
    assert proposer.interval_ms == world.policy.chain.block_ms
    await run_to_the_end(engine)
    await proposer.run_once()
    assert (proposer.sealed, engine.undurable_state.chain.head.height) == (1, TARGET + 1)
    await stop_engine(engine)


async def test_the_head_tells_how_far_a_rollback_is() -> None:
    world = World(final_after(50))
    engine = await filled(world)
    total = len([tx for block in engine.undurable_state.chain.unfinalized.values() for tx in block.txs])
    kept = len(engine.undurable_state.chain.unfinalized[Height(TARGET)].txs)
    await start(engine)
    head = await engine.query_durable(GetChainHead())
    started = engine.undurable_state.last_event
    assert head.block.height == TARGET
    assert head.rollback == RollbackProgress(started, BLOCKS - TARGET, total - kept)
    await run_to_the_end(engine)
    head = await engine.query_durable(GetChainHead())
    assert (head.rollback, head.open_transactions) == (None, total - kept)
    await stop_engine(engine)


async def test_start_and_end_are_in_the_journal_once_each() -> None:
    world = World(final_after(50))
    engine = await filled(world)
    await start(engine)
    await run_to_the_end(engine)
    events = [event for batch in world.disk.batches for event in journal_codec.unpack(batch)]
    found = [event for event in events if isinstance(event, RollbackStarted | RollbackFinished)]
    assert found == [RollbackStarted(Height(TARGET)), RollbackFinished(Height(TARGET))]
    await stop_engine(engine)


async def test_without_a_rollback_nothing_is_submitted() -> None:
    world = World(final_after(50))
    engine = await filled(world)
    before = engine.durable_head.number
    await RollbackRunner(engine).run_once()
    assert engine.durable_head.number == before
    await stop_engine(engine)
