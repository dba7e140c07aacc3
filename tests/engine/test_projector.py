"""The projection: behind the journal, never ahead of it, rebuilt when in doubt, and invisible to point reads."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.core.blocks import final_after
from tests.core.commands import enqueue_command, some_id
from tests.engine.ended_jobs import cancelled_job
from tests.simulation.journal import Fault
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import DEVELOPMENT, World, small_batches

from holdfast.core import journal_codec
from holdfast.core.base.clock_record import RecordTime
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.event import Event, JournalHead
from holdfast.core.base.values import AccountId, Amount, BatchNo, Digest, EventNo, Height, Term
from holdfast.core.chain.messages import SealBlock
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Reserve
from holdfast.core.escrow.model import Account, ReservationStatus
from holdfast.core.journal_codec import apply_stored
from holdfast.core.match.messages import Match
from holdfast.core.policy import EnginePolicy, Policy
from holdfast.core.queue.purge import PurgedJob, PurgeJobs
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.projection import projector
from holdfast.engine.queries.accounts import GetAccount

ALICE, BOB = AccountId("alice"), AccountId("bob")
PURGED = {"job", "spec"}
"""The tables that hold a cancelled job until it is purged."""
pytestmark = pytest.mark.rule("ENG-004")


async def lived(world: World, *, is_behind: bool = False) -> Engine:
    """An engine with one paid hold, one open one and some money; the tables of one that is behind have none of it."""
    engine = await world.started()
    if is_behind:
        await engine.projector.stop()  # else they have it as soon as a fifth of a second has passed
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await engine.submit(Reserve(some_id(2), ALICE, Amount(30)))
    await engine.submit(Charge(some_id(2), Height(1), BOB, Amount(20)))
    await engine.submit(Finalize(Height(1)))
    await engine.submit(Reserve(some_id(3), ALICE, Amount(5)))
    return engine


async def test_rows_say_what_the_state_says_once_they_are_written() -> None:
    world = World()
    engine = await lived(world)
    await engine.wait_tables()
    assert world.tables.rows["account"][ALICE] == (ALICE, 75, 5, 0)
    assert world.tables.rows["account"][BOB] == (BOB, 20, 0, 0)
    statuses = [row[6] for row in world.tables.rows["reservation"].values()]
    assert statuses == [ReservationStatus.PAID, ReservationStatus.HELD]
    assert world.tables.at == engine.durable_head
    await engine.stop()


async def test_point_reads_never_lag_though_the_tables_do() -> None:
    world = World()
    engine = await lived(world, is_behind=True)
    assert world.tables.rows["reservation"] == {}  # nothing is written yet
    paid = await queries.reservation(engine, some_id(2))
    assert paid is not None
    assert (paid.status, paid.charged, paid.payee) == (ReservationStatus.PAID, 20, BOB)
    engine.projector.start()
    await engine.wait_tables()
    assert await queries.reservation(engine, some_id(2)) == paid  # and now from the tables
    assert await queries.reservation(engine, some_id(77)) is None
    assert await engine.query_durable(GetAccount(ALICE)) == Account(ALICE, 75, 5, 0)
    assert await engine.query_durable(GetAccount(AccountId("nobody"))) is None
    await engine.stop()


def tables_with(world: World, key: object) -> set[str]:
    return {table for table, rows in world.tables.rows.items() if key in rows}


async def purged_job(world: World) -> tuple[Engine, EventNo]:
    """An owner whose tables hold a job that ended and left memory, and the key of its rows."""
    engine, event, admitted = await cancelled_job(world, ALICE)
    await engine.wait_tables()
    assert tables_with(world, event) >= PURGED
    await engine.submit(PurgeJobs([PurgedJob(event, admitted.id)]))
    return engine, event


async def test_a_row_that_was_deleted_is_gone_once_the_tables_know() -> None:
    world = World(final_after(0))
    engine, event = await purged_job(world)
    await engine.wait_tables()
    assert not tables_with(world, event) & PURGED
    assert await queries.job_by_event(engine, event) is None
    await engine.stop()


async def test_a_deletion_that_could_not_be_written_is_written_again() -> None:
    world = World(final_after(0))
    world.tables.write_faults = 0
    engine, event = await purged_job(world)
    world.tables.write_faults = 2
    await engine.wait_tables()
    assert not tables_with(world, event) & PURGED
    await engine.stop()


async def test_lists_say_which_event_they_are_as_of() -> None:
    world = World()
    engine = await lived(world, is_behind=True)
    assert (await queries.page(engine, "reservation", {}, 0, 10)).as_of == 0
    engine.projector.start()
    await engine.wait_tables()
    listing = await queries.page(engine, "reservation", {"status": "PAID"}, 0, 10)
    assert [hold.id for hold in listing.rows if not isinstance(hold, Account)] == [some_id(2)]
    assert (listing.as_of, listing.next_after) == (engine.durable_head.last, None)
    assert (await queries.page(engine, "account", {}, "", 1)).next_after == "alice"
    await engine.stop()


async def test_what_is_not_durable_never_reaches_the_tables() -> None:
    world = World()
    engine = await world.started()
    await engine.wait_tables()
    world.disk.faults = [Fault.HANG_THEN_FAIL]
    lost = asyncio.create_task(engine.submit(Mint(some_id(1), ALICE, Amount(100))))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.tables.rows["account"] == {}
    world.disk.release.set()
    with pytest.raises(Unavailable):
        await lost
    await asyncio.sleep(0.01)
    await engine.stop()
    assert world.tables.rows["account"] == {}


async def test_images_are_of_their_batch_not_of_what_was_decided_since() -> None:
    world = World(small_batches(rows_max=1))
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    world.disk.faults = [None, Fault.HANG]
    await engine.submit(Reserve(some_id(2), ALICE, Amount(1)))
    later = asyncio.create_task(engine.submit(Reserve(some_id(3), ALICE, Amount(50))))
    await engine.wait_tables()
    assert world.tables.rows["account"][ALICE] == (ALICE, 99, 1, 0)
    world.disk.release.set()
    await later
    await engine.stop()


async def test_tables_left_behind_by_a_crash_catch_up_at_the_next_start() -> None:
    world = World()
    engine = await lived(world)
    await engine.projector.stop()  # killed before anything was written
    again = await world.started()
    await again.wait_tables()
    assert world.tables.rows["account"][ALICE] == (ALICE, 75, 5, 0)
    assert world.tables.at.number >= 6
    await again.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        JournalHead(BatchNo(99), Term(1), EventNo(99), 5, Digest(bytes(32))),
        JournalHead(BatchNo(3), Term(1), EventNo(3), 5, Digest(b"other journal" + bytes(19))),
    ],
    ids=["ahead of the journal", "of another journal"],
)
async def test_tables_that_the_journal_contradicts_are_rebuilt(wrong: JournalHead) -> None:
    world = World()
    engine = await lived(world)
    await engine.stop()
    good = dict(world.tables.rows["account"])
    world.tables.rows["account"]["ghost"] = ("ghost", 1, 2, 3)
    world.tables.at = wrong
    again = await world.started()
    assert world.tables.rows["account"] == good
    await again.stop()


async def test_tables_dropped_by_an_operator_come_back_the_same() -> None:
    world = World(small_batches())
    engine = await lived(world)
    await engine.stop()
    rows, claims = world.tables.rows, world.tables.claims
    await world.tables.drop()
    again = await world.started()
    await again.stop()
    assert (world.tables.rows, world.tables.claims) == (rows, claims)


async def test_a_tables_failure_is_tried_again_and_loses_nothing() -> None:
    world = World()
    engine = await lived(world)
    world.tables.write_faults = 3
    await engine.wait_tables()
    assert world.tables.at == engine.durable_head
    assert world.clock.slept == [1_000] * 3
    await engine.stop()


def lagging(soft: int, most: int) -> Policy:
    engine = EnginePolicy(tables_lag_events_soft=soft, tables_lag_events_max=most)
    return msgspec.structs.replace(DEVELOPMENT, engine=engine)


async def test_new_jobs_wait_when_the_tables_are_behind_and_new_leases_when_they_are_farther_behind() -> None:
    world = World(lagging(10, 20))
    engine = await world.started()
    await engine.wait_tables()
    await engine.projector.stop()
    await engine.submit(Mint(some_id(1), ALICE, Amount(1_000)))
    requests = [enqueue_command(n, policy=world.policy) for n in range(30)]
    await engine.submit_many(requests[:10])
    jobs = asyncio.create_task(engine.submit_many(requests[10:]))
    await _turns()
    assert not jobs.done()
    admitted = engine.undurable_state.queue.depth
    assert admitted == 10
    assert isinstance(await engine.submit(Match()), Accepted | Refused)  # leases are granted still
    await engine.submit_many([Mint(some_id(n), ALICE, Amount(1)) for n in range(100, 130)])  # other commands go on
    lease = asyncio.create_task(engine.submit(Match()))
    await _turns()
    assert not lease.done()
    assert engine.undurable_state.queue.depth == admitted
    assert isinstance(await engine.submit(RecordTime()), Accepted)
    engine.projector.start()
    await lease
    assert all(isinstance(each, Accepted) for each in await jobs)
    await engine.stop()


async def _turns() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


@pytest.mark.rule("ENG-003")
async def test_the_tables_do_not_decide_what_the_state_is() -> None:
    world = World()
    engine = await lived(world)
    before = digest(engine.undurable_state)
    await engine.stop()
    world.tables.rows["account"][ALICE] = (ALICE, 1_000_000, 0, 0)
    assert digest(await world.recovered()) == before


@pytest.mark.rule("ENG-007")
@pytest.mark.parametrize("size", [0, 1, 4_095, 4_096, 4_097, 100_000])
async def test_a_memo_comes_back_whole_and_a_large_one_is_in_neither_batch_nor_memory(size: int) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    memo = b"\xab" * size
    await engine.submit(Reserve(some_id(2), ALICE, Amount(1), memo))
    hold = await queries.reservation(engine, some_id(2))
    assert hold is not None
    assert await queries.memo(engine, hold) == memo
    is_large = size > 4_096
    assert (len(world.disk.batches[-1].body) > size) is not is_large
    assert len(world.disk.attachments) == is_large
    await engine.stop()


async def test_batches_are_folded_while_they_gather_for_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    engine = await world.started()
    while world.tables.at != engine.durable_head:  # written unasked: no request is left over
        await asyncio.sleep(0)
    written, folded = world.tables.writes, list[EventNo]()

    def fold(state: State, *events: Event) -> None:
        apply_stored(state, *events)
        folded.append(state.last_event)

    monkeypatch.setattr(journal_codec, "apply_stored", fold)
    monkeypatch.setattr(projector, "FLUSH_MS", 60_000)
    monkeypatch.setattr(projector, "FOLD_MS", 1)
    for number in (1, 2):
        await engine.submit(Mint(some_id(number), ALICE, Amount(100)))
        while len(folded) < number:
            await asyncio.sleep(0)
    assert world.tables.writes == written
    await engine.wait_tables()
    assert (world.tables.writes, world.tables.at) == (written + 1, engine.durable_head)
    await engine.stop()


async def test_a_node_goes_on_without_its_projector(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    engine = await world.started()
    await engine.wait_tables()
    at = world.tables.at

    async def damaged(*_: object, **__: object) -> None:
        raise Corrupt("ENG-003", "simulated: not a database")

    monkeypatch.setattr(world.tables, "write", damaged)
    assert isinstance(await engine.submit(Mint(some_id(1), ALICE, Amount(100))), Accepted)
    engine.projector.request_flush()
    while engine.projector.is_running:
        await asyncio.sleep(0)
    assert isinstance(await engine.submit(Reserve(some_id(2), ALICE, Amount(30))), Accepted)
    hold = await queries.reservation(engine, some_id(2))
    assert hold is not None
    assert (engine.status, world.tables.at) == (EngineStatus.RUNNING, at)
    monkeypatch.undo()
    engine.projector.start()
    await engine.wait_tables()
    assert world.tables.rows["account"][ALICE] == (ALICE, 70, 30, 0)
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_a_driver_that_answers_cancelling_with_an_error_does_not_hold_up_a_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    engine = await world.started()
    begun = asyncio.Event()
    swallowed: list[bool] = []

    async def stuck(*_: object, **__: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not swallowed:
                swallowed.append(True)
                raise Unavailable("ENG-004", "the connection was closed") from None
            raise

    monkeypatch.setattr(world.tables, "write", stuck)
    await engine.submit(Mint(some_id(1), ALICE, Amount(100)))
    await begun.wait()
    async with asyncio.timeout(60):
        await engine.projector.stop()
    assert swallowed
    monkeypatch.undo()
    await engine.stop()


class Slow(SimulatedTables):
    """Tables that take their time, so that much waits for them."""

    async def write(self, *about: Any, **more: Any) -> None:
        for _ in range(500):
            await asyncio.sleep(0)
        await super().write(*about, **more)


@pytest.mark.rule("ENG-002")
async def test_who_waits_for_room_goes_on_also_after_rows_without_claims() -> None:
    world = World(small_batches(events_max=4, rows_max=1))
    world.tables = Slow()
    engine = await world.started()
    seals = [asyncio.create_task(engine.submit(SealBlock(b"p" * 32, lambda _: b"s" * 64))) for _ in range(60)]
    done, _ = await asyncio.wait(seals, timeout=60)
    assert len(done) == 60
    await engine.stop()
