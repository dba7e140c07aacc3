"""Dispatcher, reaper and verifier on a real owner: woken by what was decided, idle otherwise, never stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.core.blocks import SEAL
from tests.core.books import some_id
from tests.core.ways import ALICE, YEAR_MS, public
from tests.simulated.world import World

from holdfast.core.canon import canonical
from holdfast.core.escrow.acts import Mint
from holdfast.core.evidence.marks import TakeEvidence
from holdfast.core.job.record import JobState
from holdfast.core.lease.acts import AckLease
from holdfast.core.lease.record import Lease
from holdfast.core.proof.acts import Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.state import digest
from holdfast.core.values import AccountId, Amount, TaskId, Tier
from holdfast.duties.dispatcher import Dispatcher
from holdfast.duties.reaper import Reaper
from holdfast.duties.verifier import Verifier
from holdfast.engine import read
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.verifiers.attested import attested

ID = provider_id(public(1))
GOOD = b"good"


def verify(key: bytes, _: bytes, signature: bytes) -> bool:
    return key == public(1) and signature == GOOD


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    started = await world.started()
    await started.submit(Mint(some_id(1), ALICE, Amount(1_000)))
    await started.submit(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 4)
    await started.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await started.submit(Stake(ID, Amount(10_000), some_id(3)))
    await started.submit(Beat(ID, 4))
    await started.submit(SEAL)
    yield started
    await started.stop()


async def enqueued(engine: Engine, nonce: int = 1) -> TaskId:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    command = prepare(engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    return next(reversed(engine.state.queue.jobs))


def submission(job: TaskId, lease: Lease, signature: bytes = GOOD) -> Submit:
    body = body_of(job, lease.id, lease.provider_id, result_digest(b"out"), 3, {})
    return Submit(lease.id, lease.provider_id, Envelope(1, "attested", body, signature))


async def until(holds: object) -> None:
    async with asyncio.timeout(60):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0)


@pytest.mark.rule("MAT-007")
async def test_a_job_is_leased_as_soon_as_it_arrives(engine: Engine) -> None:
    duty = asyncio.create_task(Dispatcher(engine).run())
    job = await enqueued(engine)
    await until(lambda: job in engine.state.leases.by_job)
    duty.cancel()


@pytest.mark.rule("MAT-004", "MAT-007")
async def test_a_dispatcher_with_nothing_to_give_writes_nothing(engine: Engine) -> None:
    before = engine.durable
    dispatcher = Dispatcher(engine)
    await dispatcher.look()
    assert (engine.durable, dispatcher.ticks) == (before, 0)


@pytest.mark.rule("MAT-007")
@pytest.mark.parametrize("turns", range(5))
async def test_a_dispatcher_hears_that_it_is_cancelled_in_the_turn_it_is_stirred(engine: Engine, turns: int) -> None:
    duty = asyncio.create_task(Dispatcher(engine).run())
    await asyncio.sleep(0)
    engine.stirred()
    for _ in range(turns):
        await asyncio.sleep(0)
    duty.cancel()
    ended, _ = await asyncio.wait({duty}, timeout=60)
    assert ended
    assert duty.cancelled()


@pytest.mark.rule("LEA-003", "LEA-005")
async def test_the_reaper_ends_what_is_over_and_the_job_is_leased_again_after_its_delay(
    world: World, engine: Engine
) -> None:
    job = await enqueued(engine)
    dispatcher, reaper = Dispatcher(engine), Reaper(engine, world.clock)
    await dispatcher.look()
    await reaper.look()
    assert job in engine.state.leases.by_job
    world.clock.monotonic += 5_000
    await reaper.look()
    found = engine.state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.QUEUED, "ACK_TIMEOUT")
    world.clock.monotonic += found.not_before_ms - engine.now_ms()
    await dispatcher.look()
    assert engine.state.leases.by_job[job].attempt == 1


@pytest.mark.rule("CAN-004")
async def test_while_leases_live_the_clock_is_journaled_before_a_second_is_over(world: World, engine: Engine) -> None:
    reaper = Reaper(engine, world.clock)
    world.clock.monotonic += 1_000
    await reaper.look()
    quiet = engine.durable
    job = await enqueued(engine)
    assert engine.durable.number == quiet.number + 1  # nothing was noted while no lease lived
    await Dispatcher(engine).look()
    lease = engine.state.leases.by_job[job]
    await engine.submit(AckLease(lease.id, ID))
    world.clock.monotonic += 899
    before = engine.durable.time_ms
    await reaper.look()
    assert engine.durable.time_ms == before
    world.clock.monotonic += 1
    await reaper.look()
    assert engine.durable.time_ms == before + 900  # the next look would come too late


@pytest.mark.rule("PRF-002", "PRF-003")
@pytest.mark.parametrize(("signature", "state"), [(GOOD, JobState.COMPLETED), (b"forged", JobState.QUEUED)])
async def test_what_was_handed_in_is_judged_by_its_signature(engine: Engine, signature: bytes, state: JobState) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).look()
    await engine.submit(submission(job, engine.state.leases.by_job[job], signature))
    duty = asyncio.create_task(Verifier(engine, {"attested": attested(verify)}).run())
    await until(lambda: engine.state.queue.jobs[job].state is state)
    duty.cancel()


@pytest.mark.rule("PRF-003", "ENG-003")
async def test_a_restart_forgets_no_verdict_that_is_due(world: World, engine: Engine) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).look()
    await engine.submit(submission(job, engine.state.leases.by_job[job]))
    live = digest(engine.state)
    await engine.stop()
    assert digest(await world.recovered()) == live
    successor = await world.started()
    duty = asyncio.create_task(Verifier(successor, {"attested": attested(verify)}).run())
    await until(lambda: successor.state.queue.jobs[job].state is JobState.COMPLETED)
    duty.cancel()
    await successor.stop()


@pytest.mark.rule("EVD-005")
async def test_evidence_and_what_it_says_are_one_batch_and_known_evidence_says_nothing(engine: Engine) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).look()
    lease = engine.state.leases.by_job[job]
    take = TakeEvidence(ID, ID.hex(), "s1", 1, 2, b"lines")
    before = engine.durable.number
    first, done = await engine.submit_together([take, submission(job, lease)])
    assert engine.durable.number == before + 1
    assert isinstance(first, Accepted)
    assert isinstance(done, Accepted)
    (known,) = await engine.submit_together([take, AckLease(lease.id, ID)])
    assert isinstance(known, Accepted)
    assert known.is_repeat
    gap = TakeEvidence(ID, ID.hex(), "s1", 9, 9, b"lines")
    outcomes = await engine.submit_together([gap, AckLease(lease.id, ID)])
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], Refused)


class Held:
    """Bytes by digest, in memory."""

    def __init__(self, *outputs: bytes) -> None:
        self._by_digest = {result_digest(each): each for each in outputs}

    async def read(self, digest: bytes) -> bytes | None:
        return self._by_digest.get(digest)  # type: ignore[call-overload, no-any-return]


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize(("size", "is_hot"), [(3, True), (5_000, True), (65_536, True), (65_537, False)])
async def test_small_outputs_are_kept_in_the_store_with_the_proof(engine: Engine, size: int, is_hot: bool) -> None:
    job, output = await enqueued(engine), b"o" * size
    await Dispatcher(engine).look()
    lease = engine.state.leases.by_job[job]
    body = body_of(job, lease.id, ID, result_digest(output), size, {})
    await engine.submit(Submit(lease.id, ID, Envelope(1, "attested", body, GOOD)))
    duty = asyncio.create_task(Verifier(engine, {"attested": attested(verify)}, Held(output)).run())  # type: ignore[arg-type]
    await until(lambda: engine.state.queue.jobs[job].state is JobState.COMPLETED)
    duty.cancel()
    found = await read.result(engine, job)
    assert found is not None
    assert await read.hot_output(engine, found) == (output if is_hot else None)
