"""The dispatcher: woken by every change that could lead to an assignment, idle otherwise, and counted (MAT-007)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from tests.core.blocks import SEAL
from tests.core.commands import DEVELOPMENT, some_id
from tests.core.core_driver import ALICE, YEAR_MS, public
from tests.simulation.world import World

from holdfast.core import journal_codec
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, Kind, TaskId, Tier
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import DeclineLease, FailLease
from holdfast.core.provider.messages import ChangeStatus, Drain, Heartbeat, Register, Stake
from holdfast.core.provider.model import ProviderTransition, provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.pauses import PauseKind, ResumeKind
from holdfast.engine.loop import Engine
from holdfast.workers.dispatcher import Dispatcher

pytestmark = pytest.mark.rule("MAT-007")
ID = provider_id(public(1))


@pytest.fixture
async def world() -> World:
    match = msgspec.structs.replace(DEVELOPMENT.match, interleave_every=2, dispatch_interval_ms=60_000)
    return World(msgspec.structs.replace(DEVELOPMENT, match=match))


@pytest.fixture
async def engine(world: World) -> AsyncIterator[Engine]:
    """With a provider that has one slot; no tick by the clock within the time of a test."""
    started = await world.started()
    await started.submit(Mint(some_id(1), ALICE, Amount(10_000)))
    await started.submit(Mint(some_id(2), AccountId("oak"), Amount(10_000)))
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 1)
    await started.submit(Register(public(1), *told, world.clock.wall + YEAR_MS))
    await started.submit(Stake(ID, Amount(10_000), some_id(3)))
    await started.submit(Heartbeat(ID, 1))
    await started.submit(SEAL)
    yield started
    await started.stop()


async def enqueued(engine: Engine, nonce: int = 1, model: str = "echo") -> TaskId:
    payload = {"kind": "AI", "spec": {"model": model, "prompt": "hi"}}
    command = build_enqueue(engine.policy, ALICE, Tier.FREE, payload, 100, nonce)
    assert isinstance(command, Enqueue)
    await engine.submit(command)
    return list(engine.undurable_state.queue.jobs)[-1]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)


async def _slot_freed(engine: Engine, first: TaskId) -> None:
    lease = engine.undurable_state.leases.by_job[first]
    await engine.submit(FailLease(lease.id, lease.provider_id))


async def _more_slots(engine: Engine, _: TaskId) -> None:
    await engine.submit(Heartbeat(ID, 2))


async def _another_provider(engine: Engine, _: TaskId) -> None:
    await engine.submit(Mint(some_id(9), AccountId("elm"), Amount(10_000)))
    told = ("elm", AccountId("elm"), canonical({"AI": {"models": ["echo"]}}), "eu", 2, 1)
    await engine.submit(Register(public(2), *told, engine.now_ms() + YEAR_MS))
    await engine.submit(Stake(provider_id(public(2)), Amount(10_000), some_id(8)))
    await engine.submit(Heartbeat(provider_id(public(2)), 1))


@pytest.mark.parametrize("change", [_slot_freed, _more_slots, _another_provider])
async def test_a_job_that_waits_is_leased_as_soon_as_supply_changes(
    engine: Engine, change: Callable[[Engine, TaskId], Awaitable[None]]
) -> None:
    task = asyncio.create_task(Dispatcher(engine).run())
    first = await enqueued(engine, 1)
    await until(lambda: first in engine.undurable_state.leases.by_job)
    second = await enqueued(engine, 2)
    await asyncio.sleep(0)
    assert second not in engine.undurable_state.leases.by_job
    await change(engine, first)
    await until(lambda: second in engine.undurable_state.leases.by_job)
    task.cancel()


@pytest.mark.parametrize(
    ("stop", "go"),
    [
        (Drain(ID, True, "test"), Drain(ID, False, "test")),
        (ChangeStatus(ID, ProviderTransition.SUSPEND, "test"), ChangeStatus(ID, ProviderTransition.RECOVER, "test")),
        (PauseKind(Kind.AI), ResumeKind(Kind.AI)),
    ],
)
async def test_what_stops_work_and_lets_it_go_on_is_noticed_at_once(
    engine: Engine, stop: msgspec.Struct, go: msgspec.Struct
) -> None:
    await engine.submit(stop)  # type: ignore[arg-type]
    task = asyncio.create_task(Dispatcher(engine).run())
    job = await enqueued(engine)
    await asyncio.sleep(0)
    assert job not in engine.undurable_state.leases.by_job
    await engine.submit(go)  # type: ignore[arg-type]
    await until(lambda: job in engine.undurable_state.leases.by_job)
    task.cancel()


@pytest.mark.rule("MAT-004")
async def test_notifications_that_change_nothing_for_the_jobs_that_wait_cause_no_tick(engine: Engine) -> None:
    dispatcher = Dispatcher(engine)
    await enqueued(engine, 1, model="nobody's")
    await dispatcher.run_once()
    asked, batches = dispatcher.empty_ticks, engine.durable_head.number
    for number in range(20):
        await engine.submit(Mint(some_id(100 + number), ALICE, Amount(1)))
        await dispatcher.run_once()
    assert (dispatcher.ticks, dispatcher.empty_ticks) == (0, asked)
    assert engine.durable_head.number == batches + 20, "nothing was written but what was asked for"
    await engine.submit(Heartbeat(ID, 1))
    await dispatcher.run_once()
    await dispatcher.run_once()
    assert dispatcher.empty_ticks == asked + 1, "a heartbeat is looked at once"


@pytest.mark.rule("LEA-006")
async def test_time_alone_wakes_it_when_the_tick_comes(world: World, engine: Engine) -> None:
    dispatcher = Dispatcher(engine)
    job = await enqueued(engine)
    await dispatcher.run_once()
    lease = engine.undurable_state.leases.by_job[job]
    await engine.submit(DeclineLease(lease.id, lease.provider_id))
    await dispatcher.run_once()
    assert not dispatcher.has_work()
    world.clock.monotonic += engine.policy.lease.decline_cooldown_ms
    assert dispatcher.has_work()
    await dispatcher.run_once()
    assert engine.undurable_state.leases.by_job[job].attempt == 1


@pytest.mark.rule("TTL-001")
@pytest.mark.parametrize(("late_ms", "is_given"), [(-1, True), (0, False), (1, False)])
async def test_an_expired_job_is_not_assigned_even_before_it_was_ended(
    world: World, engine: Engine, late_ms: int, is_given: bool
) -> None:
    many = [await enqueued(engine, nonce) for nonce in range(2)]
    world.clock.monotonic += engine.undurable_state.queue.jobs[many[0]].expires_ms + late_ms - engine.now_ms()
    await engine.submit(Heartbeat(ID, 1))
    young = await enqueued(engine, 9)
    await Dispatcher(engine).run_once()
    jobs, leases = engine.undurable_state.queue.jobs, engine.undurable_state.leases.by_job
    assert set(leases) == {many[0] if is_given else young}
    assert [jobs[each].state is JobState.EXPIRED for each in many] == [not is_given] * 2


@pytest.mark.rule("MAT-005")
async def test_what_was_done_is_counted(engine: Engine) -> None:
    await engine.submit(Heartbeat(ID, 4))
    dispatcher = Dispatcher(engine)
    for nonce in range(5):
        await enqueued(engine, nonce)
    await dispatcher.run_once()
    assert (dispatcher.ticks, dispatcher.jobs, dispatcher.starvation_picks, dispatcher.last_jobs) == (1, 4, 2, 4)
    assert dispatcher.total_ns == dispatcher.last_ns > 0


@pytest.mark.rule("ENG-001")
async def test_a_match_shares_the_batch_of_the_job_that_woke_it(world: World, engine: Engine) -> None:
    dispatcher = Dispatcher(engine)
    running = asyncio.create_task(dispatcher.run())
    await asyncio.sleep(0)
    await enqueued(engine)
    kinds = [type(event).__name__ for event in journal_codec.unpack(world.disk.batches[-1])]
    assert kinds == ["JobAdmitted", "JobAssigned"]
    running.cancel()
