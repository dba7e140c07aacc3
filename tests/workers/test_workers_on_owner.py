"""Dispatcher, reaper and verification on a real owner: woken by decided batches, idle otherwise, never stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.core.blocks import SEAL
from tests.core.commands import some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import World

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.evidence.messages import StoreEvidence
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import AckLease
from holdfast.core.lease.model import Lease
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.result import result_digest
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.verifiers.attested import attested_method
from holdfast.workers.dispatcher import Dispatcher
from holdfast.workers.reaper import Reaper
from holdfast.workers.verification_scheduler import VerificationScheduler

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
    await started.submit(Heartbeat(ID, 4))
    await started.submit(SEAL)
    yield started
    await started.stop()


async def enqueued(engine: Engine, nonce: int = 1) -> TaskId:
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
    command = build_enqueue(engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    return list(engine.undurable_state.queue.jobs)[-1]


def submission(job: TaskId, lease: Lease, signature: bytes = GOOD) -> SubmitCompletion:
    body = body_of(job, lease.id, lease.provider_id, result_digest(b"out"), 3, {})
    return SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, signature))


async def until(holds: object) -> None:
    async with asyncio.timeout(60):
        while not holds():  # type: ignore[operator]
            await asyncio.sleep(0)


@pytest.mark.rule("MAT-007")
async def test_a_job_is_leased_as_soon_as_it_arrives(engine: Engine) -> None:
    task = asyncio.create_task(Dispatcher(engine).run())
    job = await enqueued(engine)
    await until(lambda: job in engine.undurable_state.leases.by_job)
    task.cancel()


@pytest.mark.rule("MAT-004", "MAT-007")
async def test_a_dispatcher_with_nothing_to_give_writes_nothing(engine: Engine) -> None:
    before = engine.durable_head
    dispatcher = Dispatcher(engine)
    await dispatcher.run_once()
    assert (engine.durable_head, dispatcher.ticks) == (before, 0)


@pytest.mark.rule("MAT-007")
@pytest.mark.parametrize("turns", range(5))
async def test_a_dispatcher_notices_that_it_is_cancelled_in_the_turn_it_is_notified(engine: Engine, turns: int) -> None:
    task = asyncio.create_task(Dispatcher(engine).run())
    await asyncio.sleep(0)
    engine.changed.notify()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=60)
    assert ended
    assert task.cancelled()


@pytest.mark.rule("LEA-003", "LEA-005")
async def test_the_reaper_ends_what_is_over_and_the_job_is_leased_again_after_its_delay(
    world: World, engine: Engine
) -> None:
    job = await enqueued(engine)
    dispatcher, reaper = Dispatcher(engine), Reaper(engine)
    await dispatcher.run_once()
    await reaper.run_once()
    assert job in engine.undurable_state.leases.by_job
    world.clock.monotonic += 5_000
    await reaper.run_once()
    found = engine.undurable_state.queue.jobs[job]
    assert (found.state, found.reason) == (JobState.QUEUED, "ACK_TIMEOUT")
    world.clock.monotonic += found.not_before_ms - engine.now_ms()
    await dispatcher.run_once()
    assert engine.undurable_state.leases.by_job[job].attempt == 1


@pytest.mark.rule("CAN-004")
async def test_while_leases_live_the_clock_is_journaled_before_a_second_is_over(world: World, engine: Engine) -> None:
    reaper = Reaper(engine)
    world.clock.monotonic += 1_000
    await reaper.run_once()
    quiet = engine.durable_head
    job = await enqueued(engine)
    assert engine.durable_head.number == quiet.number + 1  # nothing was noted while no lease lived
    await Dispatcher(engine).run_once()
    lease = engine.undurable_state.leases.by_job[job]
    await engine.submit(AckLease(lease.id, ID))
    world.clock.monotonic += 899
    before = engine.durable_head.time_ms
    await reaper.run_once()
    assert engine.durable_head.time_ms == before
    world.clock.monotonic += 1
    await reaper.run_once()
    assert engine.durable_head.time_ms == before + 900  # the next look would come too late


@pytest.mark.rule("PRF-002", "PRF-003")
@pytest.mark.parametrize(("signature", "state"), [(GOOD, JobState.COMPLETED), (b"forged", JobState.QUEUED)])
async def test_what_was_submitted_is_judged_by_its_signature(engine: Engine, signature: bytes, state: JobState) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).run_once()
    await engine.submit(submission(job, engine.undurable_state.leases.by_job[job], signature))
    task = asyncio.create_task(VerificationScheduler(engine, {"attested": attested_method(verify)}).run())
    await until(lambda: engine.undurable_state.queue.jobs[job].state is state)
    task.cancel()


@pytest.mark.rule("PRF-003", "ENG-003")
async def test_a_restart_forgets_no_verdict_that_is_due(world: World, engine: Engine) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).run_once()
    await engine.submit(submission(job, engine.undurable_state.leases.by_job[job]))
    live = digest(engine.undurable_state)
    await engine.stop()
    assert digest(await world.recovered()) == live
    successor = await world.started()
    task = asyncio.create_task(VerificationScheduler(successor, {"attested": attested_method(verify)}).run())
    await until(lambda: successor.undurable_state.queue.jobs[job].state is JobState.COMPLETED)
    task.cancel()
    await successor.stop()


@pytest.mark.rule("EVD-005")
async def test_evidence_and_what_it_says_are_one_batch_and_known_evidence_says_nothing(engine: Engine) -> None:
    job = await enqueued(engine)
    await Dispatcher(engine).run_once()
    lease = engine.undurable_state.leases.by_job[job]
    take = StoreEvidence(ID, ID.hex(), "s1", 1, 2, b"lines")
    before = engine.durable_head.number
    first, done = await engine.submit_atomic([take, submission(job, lease)])
    assert engine.durable_head.number == before + 1
    assert isinstance(first, Accepted)
    assert isinstance(done, Accepted)
    (known,) = await engine.submit_atomic([take, AckLease(lease.id, ID)])
    assert isinstance(known, Accepted)
    assert known.is_repeat
    gap = StoreEvidence(ID, ID.hex(), "s1", 9, 9, b"lines")
    outcomes = await engine.submit_atomic([gap, AckLease(lease.id, ID)])
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], Refused)


class MemoryBlobs:
    """Bytes by digest, in memory."""

    def __init__(self, *outputs: bytes) -> None:
        self._by_digest = {result_digest(each): each for each in outputs}

    async def read(self, digest: bytes) -> bytes | None:
        return self._by_digest.get(digest)  # type: ignore[call-overload, no-any-return]


@pytest.mark.rule("TIER-001")
@pytest.mark.parametrize(("size", "is_hot"), [(3, True), (5_000, True), (65_536, True), (65_537, False)])
async def test_small_outputs_are_kept_in_the_store_with_the_proof(engine: Engine, size: int, is_hot: bool) -> None:
    job, output = await enqueued(engine), b"o" * size
    await Dispatcher(engine).run_once()
    lease = engine.undurable_state.leases.by_job[job]
    body = body_of(job, lease.id, ID, result_digest(output), size, {})
    await engine.submit(SubmitCompletion(lease.id, ID, Envelope(1, "attested", body, GOOD)))
    blobs: Any = MemoryBlobs(output)
    task = asyncio.create_task(VerificationScheduler(engine, {"attested": attested_method(verify)}, blobs).run())
    await until(lambda: engine.undurable_state.queue.jobs[job].state is JobState.COMPLETED)
    task.cancel()
    found = await queries.result(engine, job)
    assert found is not None
    assert await queries.hot_output(engine, found) == (output if is_hot else None)
