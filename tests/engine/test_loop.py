"""The owner: answers only what is durable, in batches of what piled up, and never tells success wrongly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.commands import histories, some_id
from tests.simulation.journal import Fault
from tests.simulation.world import World, small_batches

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Fenced, Refused, Unavailable
from holdfast.core.base.event import Batch, Command, JournalHead, OwnershipTaken
from holdfast.core.base.values import AccountId, Amount, EventNo, Height
from holdfast.core.escrow.invariants import broken_invariants
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Reserve
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, EngineStatus
from holdfast.engine.queries.accounts import GetAccount

ALICE = AccountId("alice")


def mint(number: int, amount: int = 10) -> Mint:
    return Mint(some_id(number), ALICE, Amount(amount))


async def minted(engine: Engine) -> int:
    """How much there is, as a caller sees it."""
    account = await engine.query_durable(GetAccount(ALICE))
    return account.available if account is not None else 0


def replayed(world: World) -> State:
    """The state that folding the stored journal from nothing gives."""
    state = State(world.policy)
    journal_codec.fold(state, JournalHead(), world.disk.batches)
    return state


async def settle(turns: int = 30) -> None:
    """Let every task that can run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------------ deciding


@pytest.mark.rule("ENG-001")
async def test_an_accepted_command_names_its_event_and_is_in_the_journal() -> None:
    world = World()
    engine = await world.started()
    assert await engine.submit(mint(1)) == Accepted(EventNo(2))
    assert [type(event).__name__ for batch in world.disk.batches for event in journal_codec.unpack(batch)] == [
        "OwnershipTaken",
        "Minted",
    ]
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_refusing_one_command_does_not_disturb_the_others_of_its_batch() -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1, 10))
    good, bad, good_too = await asyncio.gather(
        engine.submit(Reserve(some_id(2), ALICE, Amount(6))),
        engine.submit(Reserve(some_id(3), ALICE, Amount(6))),
        engine.submit(Reserve(some_id(4), ALICE, Amount(4))),
    )
    assert (good, good_too) == (Accepted(EventNo(3)), Accepted(EventNo(4)))
    assert isinstance(bad, Refused)
    assert world.disk.batches[-1].first == 3
    assert world.disk.batches[-1].last == 4
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_a_command_sees_what_was_decided_before_it_though_it_is_not_durable_yet() -> None:
    world = World()
    engine = await world.started()
    outcomes = await asyncio.gather(engine.submit(mint(1, 5)), engine.submit(Reserve(some_id(2), ALICE, Amount(5))))
    assert list(outcomes) == [Accepted(EventNo(2)), Accepted(EventNo(3))]
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_what_piles_up_during_an_append_is_the_next_batch() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.HANG]
    callers = [asyncio.create_task(engine.submit(mint(1)))]
    await settle()
    callers += [asyncio.create_task(engine.submit(mint(n))) for n in range(2, 30)]
    await settle()
    assert len(world.disk.batches) == 1  # the first append hangs, nothing overtakes it
    world.disk.release.set()
    await asyncio.gather(*callers)
    assert [batch.last - batch.first + 1 for batch in world.disk.batches] == [1, 1, 28]
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_callers_who_are_answered_together_share_the_next_batch() -> None:
    world = World()
    engine = await world.started()

    async def caller(number: int) -> None:
        for turn in range(10):
            await engine.submit(mint(number * 100 + turn))

    await asyncio.gather(*(caller(number) for number in range(1, 9)))
    assert [batch.last - batch.first + 1 for batch in world.disk.batches[1:]] == [8] * 10
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_a_bulk_is_answered_in_order_each_on_its_own() -> None:
    world = World(small_batches())
    engine = await world.started()
    outcomes = await engine.submit_many([mint(n, n % 3) for n in range(1, 300)])
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [n % 3 == 0 for n in range(1, 300)]
    accepted = [outcome.event for outcome in outcomes if isinstance(outcome, Accepted)]
    assert accepted == list(range(2, 2 + len(accepted)))
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_no_batch_grows_beyond_its_bound() -> None:
    world = World(small_batches(events_max=4))
    engine = await world.started()
    await asyncio.gather(*(engine.submit(mint(n)) for n in range(1, 50)))
    assert max(batch.last - batch.first + 1 for batch in world.disk.batches) == 4
    assert await minted(engine) == 490
    await engine.stop()


# ------------------------------------------------------------------------------------------------ durability


@pytest.mark.rule("ENG-002")
async def test_nobody_is_answered_before_the_batch_is_durable() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.HANG]
    command = asyncio.create_task(engine.submit(mint(1)))
    refusal = asyncio.create_task(engine.submit(Reserve(some_id(2), ALICE, Amount(99))))
    await settle()  # both are decided, and their batch hangs
    read = asyncio.create_task(minted(engine))
    repeat = asyncio.create_task(engine.submit(mint(1)))
    follower = asyncio.ensure_future(anext(engine.event_stream.follow(EventNo(1))))
    await settle()
    waiting: list[asyncio.Future[Any]] = [command, refusal, read, repeat, follower]
    assert not any(task.done() for task in waiting)
    world.disk.release.set()
    await asyncio.gather(*waiting)
    assert read.result() == 10
    assert repeat.result() == Accepted(EventNo(2), is_repeat=True)
    await engine.stop()


@pytest.mark.rule("ENG-002")
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR, Fault.HANG_THEN_FAIL])
async def test_after_a_failed_append_memory_is_the_journal_again_and_nobody_got_success(fault: Fault) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    world.disk.faults = [fault]
    world.disk.release.set()
    callers = [asyncio.create_task(engine.submit(mint(n))) for n in (2, 3)]
    await settle(2)  # they are decided: a read now sees what is lost in a moment
    outcomes = await asyncio.gather(*callers, minted(engine), return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    await settle()
    assert engine.status is EngineStatus.RUNNING
    assert digest(engine.undurable_state) == digest(replayed(world))
    assert await minted(engine) == (30 if fault is Fault.FAIL_AFTER else 10)
    again = await asyncio.gather(*(engine.submit(mint(n)) for n in (2, 3)))
    assert [outcome.is_repeat for outcome in again if isinstance(outcome, Accepted)] == [fault is Fault.FAIL_AFTER] * 2
    assert await minted(engine) == 30
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_what_cannot_be_packed_is_forgotten_and_nobody_waits_for_it_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    engine = await world.started()
    pack = journal_codec.pack

    def unsayable(*_: object) -> Batch:
        monkeypatch.setattr(journal_codec, "pack", pack)
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(journal_codec, "pack", unsayable)
    with pytest.raises(Unavailable):
        async with asyncio.timeout(60):
            await engine.submit(mint(1))
    while engine.status is EngineStatus.RECOVERING:
        await asyncio.sleep(0)
    assert isinstance(await engine.submit(mint(2)), Accepted)
    assert digest(replayed(world)) == digest(engine.undurable_state)
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_what_was_decided_after_the_failed_append_is_discarded_with_it() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.HANG_THEN_FAIL]
    first = asyncio.create_task(engine.submit(mint(1)))
    await settle()
    later = asyncio.create_task(engine.submit(Reserve(some_id(2), ALICE, Amount(10))))
    await settle()
    world.disk.release.set()
    for task in (first, later):
        with pytest.raises(Unavailable, match="ENG-002"):
            await task
    await settle()
    assert await minted(engine) == 0
    assert isinstance(await engine.submit(Reserve(some_id(2), ALICE, Amount(10))), Refused)
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_event_numbers_of_a_batch_that_never_became_durable_are_used_again() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.FAIL]
    with pytest.raises(Unavailable):
        await engine.submit(mint(1))
    await settle()
    assert await engine.submit(mint(1)) == Accepted(EventNo(3))  # 2 is the new epoch
    numbers = [n for batch in world.disk.batches for n in range(batch.first, batch.last + 1)]
    assert numbers == list(range(1, 4))
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_a_disk_that_stays_broken_is_tried_again_and_callers_get_errors_meanwhile() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults, world.disk.acquire_faults = [Fault.FAIL], 8
    with pytest.raises(Unavailable):
        await engine.submit(mint(1))
    with pytest.raises(Unavailable, match="recovering"):
        await engine.submit(mint(1))
    with pytest.raises(Unavailable, match="recovering"):
        await minted(engine)
    await settle(100)
    assert world.clock.slept == [100, 200, 400, 800, 1600, 3200, 5000, 5000]
    assert await engine.submit(mint(1)) == Accepted(EventNo(3))
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_an_owner_that_is_told_to_stop_while_it_recovers_stops_when_it_has() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.FAIL, Fault.HANG]  # the second one is the batch of its new term
    with pytest.raises(Unavailable):
        await engine.submit(mint(1))
    await settle(20)
    stopping = asyncio.create_task(engine.stop())
    await settle(20)
    assert not stopping.done()
    world.disk.release.set()
    async with asyncio.timeout(10):
        await stopping
    assert engine.status is EngineStatus.STOPPED


async def test_a_journal_that_forgot_what_it_confirmed_is_never_built_upon() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.FORGET, Fault.FAIL]
    await engine.submit(mint(1))
    with pytest.raises(Unavailable):
        await engine.submit(mint(2))
    await settle()
    assert engine.status is EngineStatus.FAILED
    with pytest.raises(Corrupt, match="batch 2 was confirmed"):
        await engine.wait_ended()
    with pytest.raises(Unavailable, match="failed"):
        await engine.submit(mint(3))
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_a_caller_that_goes_away_disturbs_nobody() -> None:
    world = World()
    engine = await world.started()
    world.disk.faults = [Fault.HANG]
    gone, stays = asyncio.create_task(engine.submit(mint(1))), asyncio.create_task(engine.submit(mint(2)))
    await settle()
    gone.cancel()
    world.disk.release.set()
    assert await stays == Accepted(EventNo(3))
    assert await minted(engine) == 20
    await engine.stop()


@pytest.mark.rule("ENG-002")
async def test_stopping_commits_what_was_accepted_and_refuses_the_rest() -> None:
    world = World()
    engine = await world.started()
    accepted = [asyncio.create_task(engine.submit(mint(n))) for n in range(1, 6)]
    await asyncio.sleep(0)
    await engine.stop()
    assert [isinstance(await task, Accepted) for task in accepted] == [True] * 5
    with pytest.raises(Unavailable, match="stopped"):
        await engine.submit(mint(9))
    assert world.tables.at.last == 6


# ------------------------------------------------------------------------------------------------ ownership, time


@pytest.mark.rule("ENG-001")
async def test_every_owner_begins_with_its_own_term() -> None:
    world = World()
    for epoch in (1, 2, 3):
        engine = await world.started()
        assert engine.durable_head.term == epoch
        first = OwnershipTaken(engine.durable_head.term, "node", at_ms=world.clock.wall)
        assert journal_codec.unpack(world.disk.batches[-1]) == [first]
        await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_a_paused_owner_that_wakes_up_cannot_write() -> None:
    world = World()
    old = await world.started()
    await old.submit(mint(1))
    new = await world.started()
    await new.submit(mint(2))
    with pytest.raises(Fenced):
        await old.submit(mint(3))
    assert old.status is EngineStatus.FAILED
    with pytest.raises(Fenced):
        await old.submit(mint(4))
    assert await minted(new) == 20
    assert [batch.term for batch in world.disk.batches] == [1, 1, 2, 2]
    await old.stop()
    await new.stop()


@pytest.mark.rule("ENG-001")
async def test_the_owner_is_asked_for_one_append_at_a_time() -> None:
    world = World(small_batches(events_max=2))
    in_flight: list[int] = []
    world.disk.before_append = lambda batch: in_flight.append(world.disk.appends_in_flight)
    engine = await world.started()
    await asyncio.gather(*(engine.submit(mint(n)) for n in range(1, 40)))
    await engine.stop()
    assert len(in_flight) > 10
    assert set(in_flight) == {0}


@pytest.mark.rule("CAN-004")
async def test_a_batch_has_one_reading_of_time_and_time_never_runs_backwards() -> None:
    world = World()
    world.clock.wall = 5_000
    engine = await world.started()
    world.clock.monotonic += 70
    await engine.submit(mint(1))
    world.clock.wall = 1  # somebody set the wall clock back: a running node does not care
    world.clock.monotonic += 5
    await engine.submit(mint(2))
    await engine.stop()
    engine = await world.started()  # and a restarted one goes on from the last stored reading
    assert [batch.time_ms for batch in world.disk.batches] == [5_000, 5_070, 5_075, 5_075]
    await engine.stop()


# ------------------------------------------------------------------------------------------------ all of it at once

faults = st.lists(st.sampled_from([None, None, Fault.FAIL, Fault.FAIL_AFTER, Fault.TEAR]), max_size=12)


@pytest.mark.rule("ENG-002", "ENG-003", "ENG-004")
@given(histories, faults, st.integers(1, 5), st.booleans())
async def test_whatever_fails_the_state_is_the_fold_and_what_was_confirmed_is_there(
    history: list[Command], faults: list[Fault | None], callers: int, crash: bool
) -> None:
    world = World(small_batches())
    engine = await world.started()
    world.disk.faults = list(faults)
    confirmed: dict[int, Command] = {}

    async def call(commands: list[Command]) -> None:
        for command in commands:
            try:
                outcome = await engine.submit(command)
            except Unavailable:
                await settle(3)
                continue
            if isinstance(outcome, Accepted) and not outcome.is_repeat:
                assert outcome.event not in confirmed, "one event number, one command"
                confirmed[outcome.event] = command

    await asyncio.gather(*(call(history[n::callers]) for n in range(callers)))
    world.disk.faults = []
    await settle(100)
    if crash:
        engine.status = EngineStatus.FAILED  # as if killed: nothing more is written
        await engine.stop()
        engine = await world.started()
    assert digest(engine.undurable_state) == digest(replayed(world))
    assert broken_invariants(engine.undurable_state.ledger) == []
    happened = [event for batch in world.disk.batches for event in journal_codec.unpack(batch)]
    for number, command in confirmed.items():
        assert_same(command, happened[number - 1])
    await engine.stop()
    fresh = World(world.policy)
    fresh.disk.batches = world.disk.batches
    rebuilt = await fresh.started()
    await rebuilt.stop()
    assert fresh.tables.rows == world.tables.rows
    assert fresh.tables.claims == world.tables.claims


def assert_same(command: Command, event: object) -> None:
    """The event under a confirmed number is the one that this command makes."""
    assert (
        type(event).__name__
        in {
            "Mint": {"Minted"},
            "Reserve": {"Reserved"},
            "Charge": {"Charged"},
            "Refund": {"Refunded"},
            "Finalize": {"Finalized"},
            "RollBackSettlements": {"SettlementsRolledBack"},
        }[type(command).__name__]
    )
    if hasattr(command, "id"):
        assert command.id == event.id  # type: ignore[attr-defined]


@pytest.mark.rule("ENG-001")
async def test_an_event_that_cannot_be_applied_stops_the_node_before_anything_is_written() -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1, 10))
    await engine.submit(Reserve(some_id(2), ALICE, Amount(10)))
    await engine.submit(Charge(some_id(2), Height(1), AccountId("bob"), Amount(10)))
    engine.undurable_state.ledger.accounts[AccountId("bob")].pending = 3  # memory is damaged
    with pytest.raises(Unavailable, match=r"bob\.pending"):
        await engine.submit(Finalize(Height(1)))
    assert engine.status is EngineStatus.FAILED
    assert len(world.disk.batches) == 4
    await engine.stop()
