"""Jobs with replicas at the doors (LEA-009): shown with them, listed without, put back and buried together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.api.rpc.rpc_callers import ALICE, OPERATOR, RpcNode, job, rpc_node
from tests.core.blocks import SEAL, final_after
from tests.core.core_driver import public
from tests.simulation.world import evict_final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, TaskId
from holdfast.core.job.model import JobState
from holdfast.core.job.quorum import replica_ids
from holdfast.core.match.messages import Match
from holdfast.core.policy import TtlPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.result import result_digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.workers.job_purger import JobPurger

pytestmark = pytest.mark.rule("LEA-009")
SOON = msgspec.structs.replace(final_after(0), ttl=TtlPolicy(tombstone_ms=10_000))


@pytest.fixture
async def node() -> AsyncIterator[RpcNode]:
    """Final at once, with three providers and alice's money."""
    async with rpc_node(SOON) as made:
        await made.mint()
        for number in (1, 2, 3):
            await _provider(made, number)
        yield made


async def _provider(node: RpcNode, number: int) -> None:
    account, id_ = AccountId(f"p{number}"), provider_id(public(number))
    await node.mint(account, 10_000, 70 + number)
    told = (account, account, canonical({"AI": {"models": ["m"]}}), "eu", 2, 4, node.world.clock.wall + 10**10)
    for command in (
        Register(public(number), *told),
        Stake(id_, Amount(10_000), bytes([number]) * 32),
        Heartbeat(id_, 4),
    ):
        await node.access.submit(command)


async def enqueued_quorum(node: RpcNode, n: int = 2, m: int = 3) -> TaskId:
    told = job()
    told["payload"] = {**told["payload"], "quorum": {"n": n, "m": m}}  # type: ignore[dict-item]
    receipt = await node.ask(ALICE, "cap.enqueue", **told)
    return TaskId(bytes.fromhex(receipt["task_id"]))


async def vote(node: RpcNode, replica: TaskId, output: bytes) -> None:
    lease = node.engine.undurable_state.leases.by_job[replica]
    body = body_of(replica, lease.id, lease.provider_id, result_digest(output), len(output), {})
    await node.access.submit(SubmitCompletion(lease.id, lease.provider_id, Envelope(1, "attested", body, b"s" * 64)))
    await node.access.submit(RecordVerdict(lease.id, is_good=True))


@pytest.mark.rule("RPC-001")
async def test_a_job_is_shown_with_its_replicas_and_a_replica_names_its_job(node: RpcNode) -> None:
    task = await enqueued_quorum(node)
    shown = await node.ask(ALICE, "cap.getJob", task_id=task.hex())
    assert [each["state"] for each in shown["replicas"]] == ["QUEUED"] * 3
    assert {each["provider_id"] for each in shown["replicas"]} == {None}
    await node.access.submit(Match())
    one, two, three = replica_ids(task, 3)
    for id_, output in ((one, b"a"), (two, b"b"), (three, b"b")):
        await vote(node, id_, output)
    for _ in range(2):  # in memory, and from the rows once it has left it
        shown = await node.ask(ALICE, "cap.getJob", task_id=task.hex())
        replicas = shown["replicas"]
        assert [each["index"] for each in replicas] == [0, 1, 2]
        assert [each["task_id"] for each in replicas] == [id_.hex() for id_ in (one, two, three)]
        assert len({each["provider_id"] for each in replicas}) == 3
        digests = [result_digest(output).hex() for output in (b"a", b"b", b"b")]
        assert [each["digest"] for each in replicas] == digests
        assert [each["charged"] for each in replicas] == [None, 2, 2]
        assert (shown["job"]["quorum_n"], shown["job"]["quorum_m"], shown["attempts"]) == (2, 3, [])
        replica = await node.ask(ALICE, "cap.getJob", task_id=one.hex())
        assert (replica["job"]["parent"], replica["replicas"]) == (task.hex(), [])
        assert replica["payload"] == shown["payload"]
        await node.access.submit(SEAL)
        await evict_final(node.engine)
    assert node.engine.undurable_state.queue.jobs == {}
    assert len((await node.ask(ALICE, "cap.getJob", task_id=one.hex()))["attempts"]) == 1


@pytest.mark.rule("RPC-001")
async def test_lists_show_what_was_asked_for_and_replicas_where_one_asks_for_them(node: RpcNode) -> None:
    task = await enqueued_quorum(node)
    plain = TaskId(bytes.fromhex((await node.ask(ALICE, "cap.enqueue", **job()))["task_id"]))
    await node.access.submit(SEAL)
    await evict_final(node.engine)
    rows = (await node.ask(ALICE, "cap.listJobs", caller="alice"))["rows"]
    assert [row["id"] for row in rows] == [task.hex(), plain.hex()]
    rows = (await node.ask(ALICE, "cap.listJobs", caller="alice", include_replicas=True))["rows"]
    assert [row["id"] for row in rows] == [id_.hex() for id_ in (task, *replica_ids(task, 3), plain)]


@pytest.mark.rule("RTY-001")
async def test_a_failed_job_is_requeued_with_its_replicas_after_memory_has_evicted_them(node: RpcNode) -> None:
    task = await enqueued_quorum(node, 2, 2)
    await node.access.submit(Match())
    for id_, output in zip(replica_ids(task, 2), (b"a", b"b"), strict=True):
        await vote(node, id_, output)
    await node.access.submit(SEAL)
    await evict_final(node.engine)
    assert task not in node.engine.undurable_state.queue.jobs
    await node.ask(OPERATOR, "job.requeue", task_id=task.hex())
    jobs = node.engine.undurable_state.queue.jobs
    assert [(jobs[id_].state, jobs[id_].attempts) for id_ in replica_ids(task, 2)] == [(JobState.QUEUED, 1)] * 2
    assert jobs[task].requeues == 1


@pytest.mark.rule("TTL-002")
async def test_replicas_are_purged_with_their_job_and_not_before(node: RpcNode) -> None:
    engine = node.engine
    assert isinstance(engine, Engine)
    task = await enqueued_quorum(node, 3, 3)
    await node.access.submit(Match())
    first, *rest = replica_ids(task, 3)
    await vote(node, first, b"a")
    node.world.clock.monotonic += 1_000  # the first has ended earlier than its job
    for id_ in rest:
        await vote(node, id_, b"a")
    await node.access.submit(SEAL)
    await evict_final(engine)
    sexton = JobPurger(engine)
    for later_ms, left in ((9_500, 4), (500, 0)):
        node.world.clock.monotonic += later_ms
        await engine.wait_tables()
        while await sexton.purge_page():
            pass
        await engine.wait_tables()
        assert len((await engine.tables.page("job", {}, 0, 100))[0]) == left
        assert [len(await queries.attempts(engine, id_)) for id_ in (first, *rest)] == [bool(left)] * 3
    assert await queries.job(engine, first) is None
