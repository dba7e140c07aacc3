"""Following: every durable event once and in order, from any cursor, through restarts, without polling."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import some_id
from tests.simulation.journal import Fault
from tests.simulation.world import World, small_batches

import holdfast.engine.event_stream as tail_module
from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Batch, Event
from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.escrow.messages import Mint
from holdfast.engine.loop import Engine

pytestmark = pytest.mark.rule("ENG-006")


def mints(first: int, last: int) -> list[Mint]:
    return [Mint(some_id(n), AccountId("alice"), Amount(n)) for n in range(first, last + 1)]


async def take(engine: Engine, after: int, count: int) -> list[int]:
    seen = []
    async for recorded in engine.event_stream.follow(EventNo(after)):
        seen.append(int(recorded.number))
        if len(seen) == count:
            break
    return seen


@given(st.integers(0, 60), st.integers(1, 5))
async def test_a_follower_sees_everything_after_its_cursor_once_and_in_order(after: int, kept: int) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(tail_module, "BATCHES_KEPT", kept)  # so that some batches come from memory, some from disk
    world = World(small_batches(events_max=3))
    engine = await world.started()
    follower = asyncio.create_task(take(engine, 0, 60))
    await engine.submit_many(mints(1, 59))
    assert await follower == list(range(1, 61))
    assert await take(engine, after, 60 - after) == list(range(after + 1, 61)) if after < 60 else True
    await engine.stop()
    patch.undo()


async def test_a_follower_waits_without_polling_and_wakes_when_something_is_durable() -> None:
    world = World()
    engine = await world.started()
    follower = asyncio.create_task(take(engine, 1, 1))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not follower.done()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while not follower.done():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await engine.submit(mints(1, 1)[0])
    assert await follower == [2]
    await counting
    assert turns < 50
    await engine.stop()


async def test_a_batch_is_unpacked_once_for_all_who_follow_and_only_the_newest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpacked: list[int] = []

    def noting(batch: Batch) -> list[Event]:
        unpacked.append(batch.number)
        return journal_codec.unpack(batch)

    monkeypatch.setattr(tail_module, "UNPACKED_KEPT", 2)
    world = World(small_batches(events_max=3))
    engine = await world.started()
    monkeypatch.setattr(tail_module, "journal_codec", SimpleNamespace(unpack=noting))
    followers = [asyncio.create_task(take(engine, 1, 12)) for _ in range(3)]
    for begin in (1, 4, 7, 10):
        await engine.submit_many(mints(begin, begin + 2))
    assert await asyncio.gather(*followers) == [list(range(2, 14))] * 3
    assert unpacked == [2, 3, 4, 5]
    assert await take(engine, 4, 9) == list(range(5, 14))
    assert unpacked == [2, 3, 4, 5, 3]  # of the kept ones none is unpacked again
    await engine.stop()


async def test_a_follower_sees_nothing_of_a_batch_that_failed() -> None:
    world = World()
    engine = await world.started()
    follower = asyncio.create_task(take(engine, 1, 2))
    world.disk.faults = [Fault.FAIL]
    await asyncio.gather(engine.submit(mints(1, 1)[0]), return_exceptions=True)
    for _ in range(50):
        await asyncio.sleep(0)
    await engine.submit(mints(2, 2)[0])
    seen = await follower
    assert seen == [2, 3]  # the new epoch, then the second mint: numbers without a gap
    await engine.stop()


async def test_a_cursor_goes_on_after_a_restart() -> None:
    world = World()
    engine = await world.started()
    await engine.submit_many(mints(1, 5))
    seen = await take(engine, 0, 4)
    await engine.stop()
    engine = await world.started()
    await engine.submit_many(mints(6, 8))
    seen += await take(engine, seen[-1], 6)
    assert seen == list(range(1, 11))
    await engine.stop()


async def test_following_ends_when_the_engine_stops_after_all_that_is_durable() -> None:
    world = World()
    engine = await world.started()
    follower = asyncio.create_task(take(engine, 0, 10**6))
    await engine.submit_many(mints(1, 5))
    await engine.stop()
    assert await follower == list(range(1, 7))


@pytest.mark.parametrize(("after", "is_allowed"), [(-1, False), (0, True), (6, True), (7, False)])
async def test_a_cursor_of_another_history_is_refused(after: int, is_allowed: bool) -> None:
    world = World()
    engine = await world.started()
    await engine.submit_many(mints(1, 5))
    why = engine.event_stream.why_not_follow(EventNo(after))
    assert (why is None) is is_allowed
    if isinstance(why, Refused):
        assert why.rule == "ENG-006"
    await engine.stop()
