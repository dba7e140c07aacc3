"""The queue at the doors: operators pause, resume and put back, under their names; others look."""

from __future__ import annotations

import msgspec
import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, CALLERS, OPERATOR, RpcNode, job, rpc_node
from tests.core.blocks import SEAL, final_after
from tests.simulation.world import evict_final

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, TaskId
from holdfast.core.job.model import JobState
from holdfast.core.lease.messages import FailLease
from holdfast.core.match.messages import Match
from holdfast.core.policy import RetryPolicy
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id

PUBLIC = bytes(32)
ONE_TRY = msgspec.structs.replace(final_after(0), retry=RetryPolicy(failures_max=1))


async def add_provider(house: RpcNode) -> None:
    """A provider that takes what alice asks for."""
    await house.mint("oak", 10_000, 77)
    until_ms = house.world.clock.wall + 10**10
    told = ("oak", AccountId("oak"), canonical({"AI": {"models": ["m"]}}), "eu", 2, 4, until_ms)
    for command in (Register(PUBLIC, *told), Stake(provider_id(PUBLIC), Amount(10_000), bytes(32))):
        await house.access.submit(command)
    await house.access.submit(Heartbeat(provider_id(PUBLIC), 4))


async def failed(house: RpcNode, nonce: int = 1) -> str:
    """A job whose only try failed, with its money back for good."""
    receipt = await house.ask(ALICE, "cap.enqueue", **job(nonce=nonce))
    await house.access.submit(Match())
    lease = house.engine.undurable_state.leases.by_job[TaskId(bytes.fromhex(receipt["task_id"]))]
    await house.access.submit(FailLease(lease.id, lease.provider_id))
    await house.access.submit(SEAL)
    return str(receipt["task_id"])


@pytest.mark.rule("JOB-008", "SEC-001")
async def test_a_kind_that_is_paused_is_given_to_nobody_until_it_is_resumed() -> None:
    async with rpc_node(final_after(0)) as house:
        await house.mint()
        await add_provider(house)
        done = await house.ask(OPERATOR, "queue.pause", kind="AI", reason="the model is being changed")
        await house.ask(ALICE, "cap.enqueue", **job())
        await house.access.submit(Match())
        assert house.engine.undurable_state.leases.by_id == {}
        shown = await house.ask(CALLERS["nobody"], "queue.getStatus")
        assert (shown["depth"], shown["leases"]) == (1, 0)
        assert shown["paused"]["AI"]["reason"] == "the model is being changed"
        again = await house.ask(OPERATOR, "queue.pause", kind="AI", reason="another reason")
        assert again == done | {"is_repeat": True}
        await house.ask(OPERATOR, "queue.resume", kind="AI")
        assert (await house.ask(OPERATOR, "queue.resume", kind="AI"))["is_repeat"]
        await house.access.submit(Match())
        shown = await house.ask(CALLERS["nobody"], "queue.getStatus")
        assert (shown["leases"], shown["by_kind"], shown["paused"]) == (1, {"AI": 1}, {})
        assert house.privileged_acts()[-2:] == [(OPERATOR.name, "queue.pause"), (OPERATOR.name, "queue.resume")]


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("who", ["nobody", "requester", "provider", "auditor"])
@pytest.mark.parametrize(
    ("method", "asked"),
    [("queue.pause", {"kind": "AI"}), ("queue.resume", {"kind": "AI"}), ("job.requeue", {"task_id": "00" * 32})],
)
async def test_only_operators_pause_resume_and_requeue(who: str, method: str, asked: dict[str, object]) -> None:
    async with rpc_node() as house:
        name, *_ = await house.refusal(CALLERS[who], method, **asked)
        assert name in ("Unauthorized", "Forbidden")


@pytest.mark.rule("JOB-008")
@pytest.mark.parametrize(
    "asked", [{"kind": "COAL"}, {"kind": "AI", "reason": "a\nb"}, {"kind": "AI", "reason": "x" * 257}]
)
async def test_what_cannot_be_paused_is_refused(asked: dict[str, object]) -> None:
    async with rpc_node() as house:
        assert (await house.refusal(OPERATOR, "queue.pause", **asked))[0] == "InvalidParams"


@pytest.mark.rule("RTY-001", "ENG-004")
async def test_dead_letters_are_listed_and_requeued_from_what_the_tables_have() -> None:
    async with rpc_node(ONE_TRY) as house:
        await house.mint()
        await add_provider(house)
        tasks = [await failed(house, nonce) for nonce in (1, 2, 3)]
        await evict_final(house.engine)
        assert house.engine.undurable_state.queue.jobs == {}
        page = await house.ask(AUDITOR, "job.listDeadLetters", limit=2)
        assert [row["id"] for row in page["rows"]] == tasks[:2]
        more = await house.ask(OPERATOR, "job.listDeadLetters", limit=2, cursor=page["next_after"])
        assert [(row["id"], row["reason"], row["attempts"]) for row in more["rows"]] == [(tasks[2], "PROVIDER_FAIL", 1)]
        assert [row["id"] for row in (await house.ask(ALICE, "job.listDeadLetters"))["rows"]] == tasks
        assert (await house.ask(BOB, "job.listDeadLetters", caller="alice"))["rows"] == []
        done = await house.ask(OPERATOR, "job.requeue", task_id=tasks[1])
        assert await house.ask(OPERATOR, "job.requeue", task_id=tasks[1]) == done | {"is_repeat": True}
        shown = await house.ask(ALICE, "cap.getJob", task_id=tasks[1])
        assert (shown["job"]["state"], shown["job"]["attempts"], shown["job"]["requeues"]) == ("QUEUED", 1, 1)
        await house.engine.wait_tables()
        assert [row["id"] for row in (await house.ask(ALICE, "job.listDeadLetters"))["rows"]] == [tasks[0], tasks[2]]
        assert house.privileged_acts()[-1] == (OPERATOR.name, "job.requeue")
        assert (await house.refusal(OPERATOR, "job.requeue", task_id="ab" * 32))[0] == "NotFound"


@pytest.mark.rule("RTY-001", "ENG-003")
async def test_a_job_that_was_requeued_is_there_after_a_restart() -> None:
    async with rpc_node(ONE_TRY) as house:
        await house.mint()
        await add_provider(house)
        task = await failed(house)
        await house.ask(OPERATOR, "job.requeue", task_id=task)
        found = (await house.world.recovered()).queue.jobs[TaskId(bytes.fromhex(task))]
        assert (found.state, found.requeues) == (JobState.QUEUED, 1)
