"""Reading jobs and blocks: the same from memory, from rows on their way, from the tables and after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.commands import enqueue_command, payload, some_id
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles, World, drop_claims, evict_final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, Height, KeyId, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.chain.model import Block
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.model import Job, JobState
from holdfast.core.key.messages import CreateKey, RevokeKey, RotateKey
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.queue.messages import CancelJob, JobAdmitted, RaiseFee
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import Accepted
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal

SMALL, LARGE = payload("small"), payload("large " * 1_000)


@asynccontextmanager
async def running(world: World, *, is_behind: bool = False) -> AsyncIterator[Engine]:
    """An owner; where it is behind, its tables stay as they are and rows stay on their way."""
    engine = await world.started()
    await engine.wait_tables()
    if is_behind:
        await engine.projector.stop()
    yield engine
    if is_behind:
        world.disk.owner = None
        engine.projector.start()
    await engine.stop()


async def ok(engine: Engine, command: Command) -> Accepted:
    outcome = await engine.submit(command)
    assert isinstance(outcome, Accepted), outcome
    return outcome


async def admitted(engine: Engine, nonce: int, what: object = SMALL) -> TaskId:
    outcome = await ok(engine, enqueue_command(nonce, what=what, policy=engine.policy))
    assert isinstance(outcome.fact, JobAdmitted)
    return outcome.fact.id


async def funded(engine: Engine) -> None:
    await ok(engine, Mint(some_id(1), AccountId("alice"), Amount(10_000)))


async def shown(engine: Engine, id_: TaskId) -> tuple[Job, bytes]:
    job = await queries.job(engine, id_)
    assert job is not None
    return job, await queries.spec(engine, job)


# ------------------------------------------------------------------------------------------------ jobs


@pytest.mark.rule("ENG-004", "ENG-007", "JOB-007")
@pytest.mark.parametrize("what", [SMALL, LARGE], ids=["small", "large"])
async def test_a_job_reads_the_same_from_memory_while_final_from_tables_and_after_a_restart(
    what: dict[str, object],
) -> None:
    world = World(final_after(0))
    async with running(world, is_behind=True) as engine:
        await funded(engine)
        id_ = await admitted(engine, 1, what)
        alive = await shown(engine, id_)
        assert (alive[0].state, alive[1]) == (JobState.QUEUED, canonical(what))
        await ok(engine, CancelJob(id_))
        in_memory = await shown(engine, id_)
        await ok(engine, SEAL)
        assert world.tables.rows["job"] == {}
        assert await shown(engine, id_) == in_memory  # final, and not in the tables yet
        engine.projector.start()
        await evict_final(engine)
        assert id_ not in engine.undurable_state.queue.jobs
        assert await shown(engine, id_) == in_memory  # from the tables
    async with running(world) as engine:
        assert await shown(engine, id_) == in_memory
    world.tables = type(world.tables)()  # lost, and made again from the journal
    async with running(world) as engine:
        assert await shown(engine, id_) == in_memory


@pytest.mark.rule("ENG-007")
async def test_a_large_payload_is_in_no_row_and_in_no_memory() -> None:
    world = World()
    async with running(world) as engine:
        await funded(engine)
        small, large = await admitted(engine, 1), await admitted(engine, 2, LARGE)
        await engine.wait_tables()
        jobs = engine.undurable_state.queue.jobs
        assert list(world.tables.rows["spec"]) == [jobs[small].event]
        assert list(world.disk.attachments.values()) == [canonical(LARGE)]
        assert len(msgspec.msgpack.encode(jobs[large])) < 500


@pytest.mark.rule("ENG-007")
@pytest.mark.parametrize("what", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("damage", ["lost", "changed"])
async def test_a_payload_that_is_not_what_was_asked_is_named_and_never_shown(
    what: dict[str, object], damage: str
) -> None:
    world = World()
    async with running(world) as engine:
        await funded(engine)
        id_ = await admitted(engine, 1, what)
        await engine.wait_tables()
        rows, attached = world.tables.rows["spec"], world.disk.attachments
        for at in list(rows):
            rows[at] = (at, b"other")
        for each in list(attached):
            attached[each] = b"other"
        if damage == "lost":
            rows.clear()
            attached.clear()
        if damage == "lost" and what is SMALL:  # the event that admitted the job has it, too
            assert (await shown(engine, id_))[1] == canonical(what)
            return
        with pytest.raises(Corrupt, match="ENG-007"):
            await shown(engine, id_)


async def test_a_job_that_never_was_is_not_found() -> None:
    async with running(World()) as engine:
        assert await queries.job(engine, TaskId(bytes(32))) is None


@pytest.mark.rule("JOB-002", "ENG-005")
@pytest.mark.parametrize("is_behind", [True, False])
async def test_the_same_transaction_is_the_first_job_also_when_memory_has_evicted_it(is_behind: bool) -> None:
    world = World(final_after(0))
    async with running(world, is_behind=is_behind) as engine:
        await funded(engine)
        first = await ok(engine, enqueue_command(1, policy=world.policy))
        job = await queries.job_by_event(engine, first.event)
        assert job is not None
        await ok(engine, CancelJob(job.id))
        await ok(engine, SEAL)
        if not is_behind:
            await evict_final(engine)
            await drop_claims(engine)
            assert not engine.undurable_state.queue.jobs
        again = await ok(engine, enqueue_command(1, policy=world.policy))
        assert again == Accepted(first.event, is_repeat=True)
        assert await ok(engine, enqueue_command(2, policy=world.policy)) != again
    async with running(world) as engine:
        assert await ok(engine, enqueue_command(1, policy=world.policy)) == again


@pytest.mark.rule("JOB-002")
async def test_an_idempotency_key_is_remembered_over_a_restart() -> None:
    world = World()
    async with running(world) as engine:
        await funded(engine)
        first = await ok(engine, enqueue_command(1, idempotency=b"k"))
    async with running(world) as engine:
        assert await ok(engine, enqueue_command(2, idempotency=b"k")) == Accepted(first.event, is_repeat=True)
        world.clock.monotonic += world.policy.admission.idempotency_ms
        assert not (await ok(engine, enqueue_command(2, idempotency=b"k"))).is_repeat


@pytest.mark.rule("JOB-002")
async def test_what_was_admitted_is_shown_as_it_was_whatever_became_of_it() -> None:
    async with running(World()) as engine:
        await funded(engine)
        first = await ok(engine, enqueue_command(1, max_fee=10))
        assert isinstance(first.fact, JobAdmitted)
        await ok(engine, RaiseFee(first.fact.id, Amount(50)))
        assert await queries.admission(engine, first.event) == first.fact
        assert await queries.admission(engine, type(first.event)(first.event + 1)) is None
        assert await queries.admission(engine, type(first.event)(999)) is None


# ------------------------------------------------------------------------------------------------ blocks


async def heads(engine: Engine) -> list[Block | None]:
    top = engine.undurable_state.chain.head.height
    return [await queries.block(engine, Height(height)) for height in range(top + 2)]


@pytest.mark.rule("CHN-003", "ENG-004")
@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("is_behind", [True, False])
async def test_a_block_of_the_active_chain_is_found_by_its_height_wherever_it_is(depth: int, is_behind: bool) -> None:
    world = World(final_after(depth))
    async with running(world, is_behind=is_behind) as engine:
        sealed: list[Block] = []
        for _ in range(7):
            await ok(engine, SEAL)
            sealed.append(msgspec.structs.replace(engine.undurable_state.chain.head))
        assert await heads(engine) == [None, *sealed, None]
        if not is_behind:
            await engine.wait_tables()
            assert await heads(engine) == [None, *sealed, None]
        if depth:
            await ok(engine, RollBackBlocks(Height(7 - depth)))
            assert await heads(engine) == [None, *sealed[: 7 - depth], None]
            again = await ok(engine, SEAL)
            assert [block and block.event for block in await heads(engine)] == [
                None,
                *(block.event for block in sealed[: 7 - depth]),
                again.event,
                None,
            ]


@pytest.mark.rule("CHN-003", "ENG-004")
async def test_tables_that_do_not_know_of_a_rollback_yet_are_not_believed() -> None:
    world = World(final_after(2))
    async with running(world) as engine:
        for _ in range(3):
            await ok(engine, SEAL)
        await engine.wait_tables()
        await engine.projector.stop()  # from here on the tables are behind
        await ok(engine, RollBackBlocks(Height(1)))
        for _ in range(4):
            await ok(engine, SEAL)
        rows = [row for row in world.tables.rows["block"].values() if row[1] == 2]
        assert [row[3] for row in rows] == ["SEALED"]
        found = await queries.block(engine, Height(2))
        assert found is not None
        assert found.event != rows[0][0]
        assert found.event == engine.undurable_state.chain.last_final.block.first_event  # type: ignore[union-attr]
        engine.projector.start()


# ------------------------------------------------------------------------------------------------ the check


async def lived() -> World:
    """Jobs small and large, cancelled and raised, keys of every fate, blocks final, orphaned and open."""
    world = World(final_after(2))
    async with running(world) as engine:
        await funded(engine)
        for n, role in enumerate((Role.OPERATOR, Role.AUDITOR, Role.PROVIDER)):
            await ok(engine, CreateKey(KeyId(f"{n:016x}"), secret_hash(b"%d" % n), role))
        await ok(engine, RotateKey(KeyId(f"{0:016x}"), secret_hash(b"new"), 500))
        await ok(engine, RevokeKey(KeyId(f"{1:016x}")))
        jobs = [await admitted(engine, n, LARGE if n % 3 == 0 else SMALL) for n in range(6)]
        for n, id_ in enumerate(jobs[:4]):
            await ok(engine, RaiseFee(id_, Amount(20)) if n % 2 else CancelJob(id_))
            await ok(engine, SEAL)
        await ok(engine, RollBackBlocks(Height(3)))
        await ok(engine, CancelJob(jobs[4]))
        for _ in range(4):
            await ok(engine, SEAL)
        await ok(engine, CancelJob(jobs[5]))
    return world


async def bad(world: World) -> dict[str, str]:
    journal = FullJournal(SimulatedJournal(world.disk, ignores_lock=True), SimulatedFiles())
    findings = await check(journal, world.tables, world.files, world.policy)
    return {found.name: found.message for found in findings if not found.is_good}


@pytest.mark.rule("ENG-003", "ENG-004")
async def test_a_check_of_a_history_with_jobs_keys_and_blocks_finds_nothing_wrong() -> None:
    world = await lived()
    assert {table for table, rows in world.tables.rows.items() if rows} >= {"job", "spec", "key", "block"}
    assert await bad(world) == {}


def _change(table: str, column: int, value: object) -> Callable[[World], str]:
    def damage(world: World) -> str:
        rows = world.tables.rows[table]
        key = next(iter(rows))
        rows[key] = (*rows[key][:column], value, *rows[key][column + 1 :])
        return f"1 different: {table} {key}"

    return damage


def _lose(table: str) -> Callable[[World], str]:
    def damage(world: World) -> str:
        key = next(iter(world.tables.rows[table]))
        del world.tables.rows[table][key]
        return f"1 missing: {table} {key}"

    return damage


@pytest.mark.rule("ENG-004")
@pytest.mark.parametrize(
    "damage",
    [
        _change("job", Job.__struct_fields__.index("state"), "COMPLETED"),
        _change("job", Job.__struct_fields__.index("max_fee"), 1),
        _change("spec", 1, b"other"),
        _change("key", 2, "operator!"),
        _change("key", 7, bytes(32)),
        _change("block", 3, "ORPHANED?"),
        _change("block", 2, bytes(32)),
        *(_lose(table) for table in ("job", "spec", "key", "block")),
    ],
)
async def test_a_changed_or_lost_row_of_each_new_table_is_named(damage: Callable[[World], str]) -> None:
    world = await lived()
    says = damage(world)
    assert await bad(world) == {"tables": says}


@pytest.mark.rule("ENG-007")
async def test_a_jobs_large_payload_that_is_gone_is_named() -> None:
    world = await lived()
    del world.disk.attachments[next(iter(world.disk.attachments))]
    assert (await bad(world))["payloads"].startswith("1 of 2 large payloads: the payload of event")
