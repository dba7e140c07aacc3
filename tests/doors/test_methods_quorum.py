"""Jobs with replicas at the doors (LEA-009): shown with them, listed without, put back and buried together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.core.blocks import SEAL, final_after
from tests.core.ways import public
from tests.doors.visitors import ALICE, OPERATOR, Node, job, node

from holdfast.core.canon import canonical
from holdfast.core.job.quorum import replica_ids
from holdfast.core.job.record import JobState
from holdfast.core.match.decide import Match
from holdfast.core.policy import TtlPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.result import result_digest
from holdfast.core.values import AccountId, Amount, TaskId
from holdfast.duties.sexton import Sexton
from holdfast.engine import read
from holdfast.engine.loop import Engine

pytestmark = pytest.mark.rule("LEA-009")
SOON = msgspec.structs.replace(final_after(0), ttl=TtlPolicy(tombstone_ms=10_000))


@pytest.fixture
async def house() -> AsyncIterator[Node]:
    """Final at once, with three providers and alice's money."""
    async with node(SOON) as made:
        await made.mint()
        for number in (1, 2, 3):
            await _provider(made, number)
        yield made


async def _provider(house: Node, number: int) -> None:
    account, id_ = AccountId(f"p{number}"), provider_id(public(number))
    await house.mint(account, 10_000, 70 + number)
    told = (account, account, canonical({"AI": {"models": ["m"]}}), "eu", 2, 4, house.world.clock.wall + 10**10)
    for command in (Register(public(number), *told), Stake(id_, Amount(10_000), bytes([number]) * 32), Beat(id_, 4)):
        await house.desk.submit(command)


async def asked(house: Node, n: int = 2, m: int = 3) -> TaskId:
    told = job()
    told["payload"] = {**told["payload"], "quorum": {"n": n, "m": m}}  # type: ignore[dict-item]
    receipt = await house.ask(ALICE, "cap.enqueue", **told)
    return TaskId(bytes.fromhex(receipt["task_id"]))


async def vote(house: Node, replica: TaskId, output: bytes) -> None:
    lease = house.engine.state.leases.by_job[replica]
    body = body_of(replica, lease.id, lease.provider_id, result_digest(output), len(output), {})
    await house.desk.submit(Submit(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64)))
    await house.desk.submit(Judge(lease.id, is_good=True))


@pytest.mark.rule("RPC-001")
async def test_a_job_is_shown_with_its_replicas_and_a_replica_names_its_job(house: Node) -> None:
    task = await asked(house)
    shown = await house.ask(ALICE, "cap.getJob", task_id=task.hex())
    assert [each["state"] for each in shown["replicas"]] == ["QUEUED"] * 3
    assert {each["provider_id"] for each in shown["replicas"]} == {None}
    await house.desk.submit(Match())
    one, two, three = replica_ids(task, 3)
    for id_, output in ((one, b"a"), (two, b"b"), (three, b"b")):
        await vote(house, id_, output)
    for _ in range(2):  # in memory, and from the rows once it has left it
        shown = await house.ask(ALICE, "cap.getJob", task_id=task.hex())
        replicas = shown["replicas"]
        assert [each["index"] for each in replicas] == [0, 1, 2]
        assert [each["task_id"] for each in replicas] == [id_.hex() for id_ in (one, two, three)]
        assert len({each["provider_id"] for each in replicas}) == 3
        digests = [result_digest(output).hex() for output in (b"a", b"b", b"b")]
        assert [each["digest"] for each in replicas] == digests
        assert [each["charged"] for each in replicas] == [None, 2, 2]
        assert (shown["job"]["quorum_n"], shown["job"]["quorum_m"], shown["attempts"]) == (2, 3, [])
        replica = await house.ask(ALICE, "cap.getJob", task_id=one.hex())
        assert (replica["job"]["parent"], replica["replicas"]) == (task.hex(), [])
        assert replica["payload"] == shown["payload"]
        await house.desk.submit(SEAL)
        await house.engine.projector.drain()  # type: ignore[attr-defined]
    assert house.engine.state.queue.jobs == {}
    assert len((await house.ask(ALICE, "cap.getJob", task_id=one.hex()))["attempts"]) == 1


@pytest.mark.rule("RPC-001")
async def test_lists_show_what_was_asked_for_and_replicas_where_one_asks_for_them(house: Node) -> None:
    task = await asked(house)
    plain = TaskId(bytes.fromhex((await house.ask(ALICE, "cap.enqueue", **job()))["task_id"]))
    await house.desk.submit(SEAL)
    await house.engine.projector.drain()  # type: ignore[attr-defined]
    rows = (await house.ask(ALICE, "cap.listJobs", caller="alice"))["rows"]
    assert [row["id"] for row in rows] == [task.hex(), plain.hex()]
    rows = (await house.ask(ALICE, "cap.listJobs", caller="alice", include_replicas=True))["rows"]
    assert [row["id"] for row in rows] == [id_.hex() for id_ in (task, *replica_ids(task, 3), plain)]


@pytest.mark.rule("RTY-001")
async def test_a_lost_job_is_put_back_with_its_replicas_after_memory_has_let_them_go(house: Node) -> None:
    task = await asked(house, 2, 2)
    await house.desk.submit(Match())
    for id_, output in zip(replica_ids(task, 2), (b"a", b"b"), strict=True):
        await vote(house, id_, output)
    await house.desk.submit(SEAL)
    assert task not in house.engine.state.queue.jobs
    await house.ask(OPERATOR, "job.requeue", task_id=task.hex())
    jobs = house.engine.state.queue.jobs
    assert [(jobs[id_].state, jobs[id_].attempts) for id_ in replica_ids(task, 2)] == [(JobState.QUEUED, 1)] * 2
    assert jobs[task].requeues == 1


@pytest.mark.rule("TTL-002")
async def test_replicas_are_buried_with_their_job_and_not_before(house: Node) -> None:
    engine = house.engine
    assert isinstance(engine, Engine)
    task = await asked(house, 3, 3)
    await house.desk.submit(Match())
    first, *rest = replica_ids(task, 3)
    await vote(house, first, b"a")
    house.world.clock.monotonic += 1_000  # the first has ended earlier than its job
    for id_ in rest:
        await vote(house, id_, b"a")
    await house.desk.submit(SEAL)
    sexton = Sexton(engine, house.world.clock)
    for later_ms, left in ((9_500, 4), (500, 0)):
        house.world.clock.monotonic += later_ms
        await engine.projector.drain()
        while await sexton.look():
            pass
        await engine.projector.drain()
        assert len((await engine.tables.page("job", {}, 0, 100))[0]) == left
        assert len((await engine.tables.page("lease", {}, 0, 100))[0]) == (3 if left else 0)
    assert await read.job(engine, first) is None
