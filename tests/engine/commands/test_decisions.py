"""How waiting commands are decided: in runs over callers, in order within one, with all claims they depend on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.commands import enqueue_command, some_id
from tests.simulation.world import World, drop_claims, small_batches

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.event import Answer, Command, Event
from holdfast.core.base.privileged import PrivilegedActRecorded, PrivilegedCommand
from holdfast.core.base.values import AccountId, Amount, EventNo, Height
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.messages import Mint, Minted
from holdfast.core.index.unique_ids import claim_number
from holdfast.core.queue.messages import Enqueue, JobAdmitted
from holdfast.core.state import State
from holdfast.engine.commands import decisions
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted, Outcome
from holdfast.ports import FoundClaims

ALICE = AccountId("alice")


def mint(number: int, amount: int = 1_000) -> Mint:
    return Mint(some_id(number), ALICE, Amount(amount))


def events_by_batch(world: World) -> list[list[Event]]:
    return [journal_codec.unpack(batch) for batch in world.disk.batches]


def facts(outcomes: Sequence[Outcome]) -> list[Event | None]:
    assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
    return [outcome.fact for outcome in outcomes if isinstance(outcome, Accepted)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Command]]:
    """The runs of jobs that were put to the queue."""
    seen: list[list[Command]] = []
    decide = state_machine.COMMAND_RUNS[Enqueue]

    def spy(state: State, commands: Sequence[Command], now_ms: int) -> list[Answer]:
        seen.append(list(commands))
        return decide(state, commands, now_ms)

    monkeypatch.setitem(state_machine.COMMAND_RUNS, Enqueue, spy)
    return seen


@pytest.mark.rule("ENG-001")
async def test_commands_of_one_type_are_decided_together_whoever_submits_them(runs: list[list[Command]]) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    jobs = [enqueue_command(nonce) for nonce in range(6)]
    _, bulk, *single = await asyncio.gather(
        engine.submit_many([mint(3)]),  # it finds the owner idle; the others come while it is decided
        engine.submit_many([jobs[0], mint(2), jobs[1]]),
        *(engine.submit_many([job]) for job in jobs[2:]),
    )
    assert runs == [[jobs[0], *jobs[2:]], [jobs[1]]]
    assert [type(fact) for fact in facts(bulk)] == [JobAdmitted, Minted, JobAdmitted]
    outcomes = [*bulk, *(outcome for outcomes in single for outcome in outcomes)]
    numbers = [outcome.event for outcome in outcomes if isinstance(outcome, Accepted)]
    assert numbers == [4, 9, 10, 5, 6, 7, 8]
    await engine.stop()


@pytest.mark.rule("ENG-001", "SEC-001")
async def test_privileged_commands_are_decided_together_too_and_each_is_recorded(runs: list[list[Command]]) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    jobs = [enqueue_command(nonce) for nonce in (1, 2, 1)]
    asked = [PrivilegedCommand("local", "cap.enqueue", job) for job in jobs]
    _, *outcomes = await asyncio.gather(engine.submit(mint(2)), *map(engine.submit, asked))
    assert runs == [jobs]
    assert [each.event for each in outcomes if isinstance(each, Accepted)] == [5, 7, 5]
    assert [type(event) for event in events_by_batch(world)[-1][-4:]] == [PrivilegedActRecorded, JobAdmitted] * 2
    await engine.stop()


@pytest.mark.rule("ENG-001", "CHN-002")
@pytest.mark.parametrize(
    ("barrier", "heights"),
    [(SEAL, (2, 3)), (PrivilegedCommand("local", "chain.rollback", RollBackBlocks(Height(0))), (2, 1))],
)
async def test_nothing_is_decided_before_a_block_or_a_rollback_that_was_asked_for_earlier(
    runs: list[list[Command]], barrier: Command, heights: tuple[int, int]
) -> None:
    world = World(final_after(3))
    engine = await world.started()
    await engine.submit_many([mint(1), SEAL])
    commands = [mint(2), enqueue_command(1), barrier, enqueue_command(2)]  # the first finds the owner idle
    _, first, _, second = await asyncio.gather(*map(engine.submit, commands))
    before, after = facts([first, second])
    assert isinstance(before, JobAdmitted)
    assert isinstance(after, JobAdmitted)
    assert (before.height, after.height) == heights
    assert len(runs) == 2
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_a_long_bulk_does_not_keep_others_waiting() -> None:
    world = World()
    engine = await world.started()
    bulk = asyncio.create_task(engine.submit_many([mint(number, 1) for number in range(2_000)]))
    await asyncio.sleep(0)
    other = await engine.submit(mint(9_999))
    assert isinstance(other, Accepted)
    assert other.event < 600
    assert len(facts(await bulk)) == 2_000
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_a_fault_in_a_decision_is_the_answer_to_that_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    decide = state_machine.COMMAND_RUNS[Enqueue]

    def stumble(state: State, commands: Sequence[Enqueue], now_ms: int) -> list[Answer]:
        if any(command.nonce == 2 for command in commands):
            raise ZeroDivisionError
        return decide(state, commands, now_ms)

    monkeypatch.setitem(state_machine.COMMAND_RUNS, Enqueue, stumble)
    outcomes = await asyncio.gather(
        *(engine.submit(enqueue_command(nonce)) for nonce in range(5)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, Accepted, ZeroDivisionError, Accepted, Accepted]
    await engine.stop()


@pytest.mark.rule("ENG-007")
async def test_a_batch_with_many_bytes_beside_it_takes_no_more_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    large = {"kind": "AI", "spec": {"model": "m", "prompt": "x" * 5_000}}
    monkeypatch.setattr(decisions, "ATTACHED_BYTES_MAX", 10_001)
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    commands: list[Command] = [*(enqueue_command(nonce, what=large) for nonce in range(5)), mint(3)]
    await asyncio.gather(engine.submit(mint(2)), *(engine.submit_atomic([each]) for each in commands))
    added = [[type(event) for event in events] for events in events_by_batch(world)[2:]]
    assert added == [[Minted, JobAdmitted, JobAdmitted], [JobAdmitted] * 2, [JobAdmitted, Minted]]
    await engine.stop()


# ------------------------------------------------------------------------------------------------ atomic groups


@pytest.mark.rule("ENG-001")
async def test_a_group_lies_in_one_batch_however_many_events_it_has() -> None:
    world = World(small_batches(events_max=4))
    engine = await world.started()
    group, *_ = await asyncio.gather(
        engine.submit_atomic([mint(number) for number in range(10)]),
        *(engine.submit_many([mint(100 + number)]) for number in range(9)),
    )
    ids = {some_id(number) for number in range(10)}
    assert len(facts(group)) == 10
    holding = [events for events in events_by_batch(world) if any(getattr(each, "id", None) in ids for each in events)]
    assert len(holding) == 1
    await engine.stop()


@pytest.mark.rule("ENG-001")
async def test_the_members_of_a_group_follow_only_a_new_head() -> None:
    world = World()
    engine = await world.started()
    await engine.submit(mint(1))
    assert await engine.submit_atomic([mint(1), mint(2)]) == [Accepted(engine.undurable_state.last_event, True)]
    refused = await engine.submit_atomic([mint(3, 0), mint(2)])
    assert len(refused) == 1
    assert len(facts(await engine.submit_atomic([mint(2), mint(3)]))) == 2
    await engine.stop()


@pytest.mark.rule("ENG-001", "ENG-005")
async def test_the_claims_of_all_members_are_loaded_before_the_head_is_decided() -> None:
    world = World(small_batches())
    engine = await world.started()
    old = await engine.submit(mint(1))
    await drop_claims(engine)
    asked: list[tuple[int, int]] = []
    find = world.tables.find_claims

    async def spy(keys: Sequence[bytes]) -> FoundClaims:
        asked.append((len(keys), engine.undurable_state.last_event))
        return await find(keys)

    world.tables.find_claims = spy  # type: ignore[method-assign]
    before = engine.undurable_state.last_event
    head, member = await engine.submit_atomic([mint(2), mint(1)])
    assert asked == [(1, before)]
    assert isinstance(old, Accepted)
    assert member == Accepted(old.event, is_repeat=True)
    assert facts([head])
    await engine.stop()


# ------------------------------------------------------------------------------------------------ claims


class _SlowTables:
    """Lookups of claims wait until they are released."""

    def __init__(self, world: World) -> None:
        self.may_answer, self.asked, self._find = asyncio.Event(), 0, world.tables.find_claims
        world.tables.find_claims = self.find  # type: ignore[method-assign]

    async def find(self, keys: Sequence[bytes]) -> FoundClaims:
        self.asked += 1
        await self.may_answer.wait()
        return await self._find(keys)


async def _with_old_claims(world: World) -> Engine:
    engine = await world.started()
    await engine.submit_many([mint(number) for number in range(1, 5)])
    await drop_claims(engine)
    assert engine.undurable_state.claims.recent == {}
    return engine


@pytest.mark.rule("ENG-005")
async def test_a_command_that_lacks_claims_waits_with_its_callers_later_ones_and_nobody_else_does() -> None:
    world = World(small_batches())
    engine = await _with_old_claims(world)
    slow = _SlowTables(world)
    waiting = asyncio.create_task(engine.submit_many([mint(1), mint(50), mint(51)]))
    other = await engine.submit(mint(60))
    assert not waiting.done()
    slow.may_answer.set()
    first, *later = await waiting
    assert first == Accepted(EventNo(2), is_repeat=True)
    assert isinstance(other, Accepted)
    assert all(isinstance(outcome, Accepted) and outcome.event > other.event for outcome in later)
    await engine.stop()


@pytest.mark.rule("ENG-005")
async def test_absent_counts_only_as_of_everything_that_memory_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with the prefix of an old one: the tables are asked, and again where claims left memory meanwhile."""
    world = World(small_batches())
    engine = await world.started()
    ours, theirs = b"12345678" + bytes(24), b"another" + bytes(25)
    await engine.submit(Mint(ours, ALICE, Amount(1)))
    await drop_claims(engine)
    engine.claim_index.prefixes.load([[claim_number(b"m" + theirs)]])
    slow = _SlowTables(world)
    slow.may_answer.set()
    stale = [False]
    covers = engine.claim_index.covers

    def once_stale(checkpoint: int) -> bool:
        if slow.asked == 1 and stale[0]:
            return False
        stale[0] = True  # the first question comes from the lookup itself, the second one from the decision
        return covers(checkpoint)

    monkeypatch.setattr(engine.claim_index, "covers", once_stale)
    outcome = await engine.submit(Mint(theirs, ALICE, Amount(1)))
    assert facts([outcome])
    assert slow.asked == 2
    await engine.stop()


@pytest.mark.rule("ENG-002", "ENG-005")
async def test_whoever_waits_for_claims_is_told_when_the_journal_fails() -> None:
    world = World(small_batches())
    engine = await _with_old_claims(world)
    slow = _SlowTables(world)
    waiting = asyncio.create_task(engine.submit(mint(1)))
    for _ in range(3):
        await asyncio.sleep(0)
    engine.fail(RuntimeError("the disk is gone"))
    outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
    assert "the disk is gone" in str(outcome)
    slow.may_answer.set()
    await engine.stop()
