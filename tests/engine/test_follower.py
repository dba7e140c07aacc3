"""Followers: the same state in a second process, reads with a stated lag, and taking over without loading."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import histories, some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import World, small_batches

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Command, JournalHead
from holdfast.core.base.values import AccountId, Amount, BatchNo, Digest, EventNo, Height, Term
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Reserve
from holdfast.core.escrow.model import ReservationStatus
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.follower import Follower
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.snapshots import snapshot_files

ALICE, BOB = AccountId("alice"), AccountId("bob")
pytestmark = pytest.mark.rule("ENG-006")


def follower_of(world: World) -> Follower:
    return Follower(SimulatedJournal(world.disk), world.tables, world.files, world.clock, world.policy)


async def caught_up(follower: Follower, engine: Engine) -> None:
    while follower.tip.number < engine.durable_head.number:
        await asyncio.sleep(0)


def kill(engine: Engine, world: World) -> None:
    """As if by kill -9: it writes nothing any more and its lock is free."""
    engine.status = EngineStatus.FAILED
    world.disk.owner = None


@given(histories, st.integers(0, 60), st.booleans())
async def test_a_follower_has_the_owners_state_wherever_it_joined(
    history: list[Command], joins_at: int, has_snapshot: bool
) -> None:
    world = World(small_batches())
    engine = await world.started()
    await engine.submit_many(history[:joins_at])
    if has_snapshot:
        await engine.wait_tables()
        await snapshot_files.make(world.files, engine.journal, world.policy)
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    await engine.submit_many(history[joins_at:])
    await caught_up(follower, engine)
    assert digest(follower.state) == digest(engine.undurable_state)
    following.cancel()
    await engine.stop()


@given(histories, histories, st.integers(0, 40))
async def test_a_follower_takes_over_without_loading_and_nothing_is_missing_or_twice(
    before: list[Command], after: list[Command], projected: int
) -> None:
    world = World(small_batches())
    engine = await world.started()
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    await engine.submit_many(before[:projected])
    await engine.wait_tables()
    await engine.projector.stop()  # what comes now is in the journal only
    projected_to = world.tables.at
    first = await engine.submit_many(before[projected : projected + 3])
    await caught_up(follower, engine)
    following.cancel()
    reads = count_reads(world)
    kill(engine, world)
    successor = world.engine(owner="successor")
    await successor.start(follower)
    assert successor.durable_head.term == 2
    at_checkpoint = [projected_to.number - 1] if projected_to.number else []  # whether the tables are this journal's
    assert reads == [engine.durable_head.number, *at_checkpoint], "it read history again"
    again = await successor.submit_many(before[projected : projected + 3])
    for one, two in zip(first, again, strict=True):
        if isinstance(one, Accepted) and isinstance(two, Accepted):
            assert two.is_repeat or two.event > one.event
    await successor.submit_many(after)
    await successor.stop()
    fresh = World(world.policy)
    fresh.disk.batches = world.disk.batches
    assert digest(await fresh.recovered()) == digest(successor.undurable_state)
    await fresh.projected()
    assert (fresh.tables.rows, fresh.tables.claims) == (world.tables.rows, world.tables.claims)
    await engine.stop()


def count_reads(world: World) -> list[int]:
    """From which batches the journal is read from now on."""
    reads: list[int] = []
    world.disk.on_read = reads.append
    return reads


async def test_a_follower_answers_point_reads_that_the_tables_do_not_have_yet() -> None:
    world = World()
    engine = await world.started()
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    await engine.projector.stop()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.submit(Reserve(some_id(2), ALICE, Amount(30), b"x" * 9_000))
    await engine.submit(Charge(some_id(2), Height(1), BOB, Amount(20)))
    await engine.submit(Finalize(Height(1)))
    await caught_up(follower, engine)
    hold = await queries.reservation(follower, some_id(2))
    assert hold is not None
    assert hold.status is ReservationStatus.PAID
    assert await queries.memo(follower, hold) == b"x" * 9_000
    assert follower.replication_status().tip == engine.durable_head
    assert follower.replication_status().role == "follower"
    following.cancel()
    await engine.stop()


async def test_a_follower_evicts_what_the_tables_hold() -> None:
    world = World(small_batches(rows_max=8))
    engine = await world.started()
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    for lot in range(30):
        await engine.submit_many([Mint(some_id(lot * 20 + n), ALICE, Amount(1)) for n in range(20)])
        await engine.wait_tables()
        await caught_up(follower, engine)
    assert len(follower.state.claims.recent) + len(follower.state.claims.older) < 100
    assert not any(follower.state.touched.values())  # a standby keeps no rows
    following.cancel()
    await engine.stop()


async def test_a_follower_streams_events_like_the_owner() -> None:
    world = World()
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    seen: list[int] = []

    async def watch() -> None:
        async for recorded in follower.event_stream.follow(EventNo(0)):
            seen.append(recorded.number)

    watching = asyncio.create_task(watch())
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(2, 10)])
    while len(seen) < 10:
        await asyncio.sleep(0)
    assert seen == list(range(1, 11))
    for task in (following, watching):
        task.cancel()
    await engine.stop()


async def test_a_follower_of_a_damaged_journal_stops_and_says_so() -> None:
    world = World()
    engine = await world.started()
    follower = follower_of(world)
    await follower.load()
    following = asyncio.create_task(follower.run())
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await caught_up(follower, engine)
    world.disk.batches.append(
        journal_codec.pack(JournalHead(BatchNo(2), Term(1), EventNo(2), 0, Digest(b"x" * 32)), Term(1), [], 10**9)
    )
    with pytest.raises(Corrupt, match="ENG-001"):
        await following
    await engine.stop()


@pytest.mark.rule("ENG-004")
async def test_a_successor_rebuilds_tables_that_contradict_the_journal() -> None:
    world = World()
    engine = await world.started()
    follower = follower_of(world)
    await follower.load()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.wait_tables()
    await engine.projector.stop()
    world.tables.at = JournalHead(BatchNo(77), Term(1), EventNo(77), 0, Digest(b"x" * 32))
    world.tables.rows["account"]["ghost"] = ("ghost", 1, 1, 1)
    kill(engine, world)
    successor = world.engine()
    await successor.start(follower)
    assert "ghost" not in world.tables.rows["account"]
    assert world.tables.rows["account"][ALICE] == (ALICE, 100, 0, 0)
    await successor.stop()
    await engine.stop()


@pytest.mark.parametrize("joins_early", [True, False])
async def test_a_successor_rebuilds_what_the_tables_lost_after_it_had_evicted_it(joins_early: bool) -> None:
    world = World(small_batches(rows_max=1))
    engine, follower = await world.started(), follower_of(world)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.wait_tables()
    if joins_early:
        await follower.load()
    tables = world.tables
    before = {table: dict(rows) for table, rows in tables.rows.items()}, dict(tables.claims), tables.at
    for number in range(2, 6):
        await engine.submit(Reserve(some_id(number), ALICE, Amount(1)))
        await engine.wait_tables()
    await follower.load() if not joins_early else await follower.catch_up()
    await engine.projector.stop()
    tables.rows, tables.claims, tables.at = before  # as after a crash of a server that syncs the tables later
    kill(engine, world)
    successor = world.engine(owner="successor")
    await successor.start(follower)
    await successor.stop()
    fresh = World(world.policy)
    fresh.disk.batches = world.disk.batches
    await fresh.projected()
    assert (fresh.tables.rows, fresh.tables.claims) == (tables.rows, tables.claims)
    await engine.stop()


async def test_a_follower_beside_tables_that_stand_still_does_not_ask_at_every_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(small_batches(events_max=1, rows_max=4))
    engine, asked = await world.started(), 0
    await engine.projector.stop()
    for number in range(1, 129):
        await engine.submit(Mint(some_id(number), ALICE, Amount(1)))
    checkpoint = world.tables.checkpoint

    async def counted() -> JournalHead:
        nonlocal asked
        asked += 1
        return await checkpoint()

    monkeypatch.setattr(world.tables, "checkpoint", counted)
    follower = follower_of(world)
    await follower.load()
    assert follower.tip == engine.durable_head
    assert asked <= 10
    await engine.stop()


async def test_a_follower_waits_a_while_for_stores_that_the_owner_is_just_making(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    engine = await world.started()
    await engine.projector.stop()
    await engine.submit(Mint(some_id(1), ALICE, Amount(1)))
    follower, left = follower_of(world), 3
    begin = follower.event_stream.begin

    async def sleep(ms: int) -> None:
        world.clock.monotonic += ms

    def not_yet(end: JournalHead) -> None:
        nonlocal left
        left -= 1
        if left:
            raise Unavailable("ENG-004", "there are no tables yet")
        begin(end)

    monkeypatch.setattr(world.clock, "sleep", sleep)
    monkeypatch.setattr(follower.event_stream, "begin", not_yet)
    await follower.load_when_created()
    assert follower.tip == engine.durable_head
    left = -1
    with pytest.raises(Unavailable, match="no tables yet"):
        await follower.load_when_created()
    await engine.stop()
