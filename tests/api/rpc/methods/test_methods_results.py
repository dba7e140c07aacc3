"""Results at the doors: shown, read, used once, from memory and from rows, and never before their block."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.api.result_node import ID, SERVING, ResultNode, result_node
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, OPERATOR, RpcNode
from tests.core.blocks import SEAL, verify
from tests.core.commands import some_id
from tests.simulation.world import evict_final

from holdfast.api.node_access import ANONYMOUS
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest, TaskId
from holdfast.core.escrow.messages import Finalize
from holdfast.core.job.model import Job, JobState
from holdfast.core.policy import ChainPolicy
from holdfast.engine import queries
from holdfast.engine.result_view import build_consume
from holdfast.lightclient import result_proof

AT_ONCE = msgspec.structs.replace(SERVING, chain=ChainPolicy(finality_depth=0))
"""Blocks are final when they are sealed: results leave memory at once."""


def rpc_of(shop: ResultNode) -> RpcNode:
    return RpcNode(shop.world, shop.access)


async def make_final(shop: ResultNode, job: TaskId, *, projected: bool) -> None:
    """The result is final; it has left memory for the tables, or is still there."""
    if projected:
        await evict_final(shop.engine)
    assert (job in shop.engine.undurable_state.results) is not projected


@pytest.mark.rule("RES-003")
async def test_a_result_is_shown_with_all_that_the_record_has_and_who_used_it() -> None:
    async with result_node() as here:
        job = await here.readable(b"output")
        found = await rpc_of(here).ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["status"], found["height_resolved"], found["readable_from"]) == ("RESOLVED", 2, 3)
        assert (found["result_size"], found["caller"], found["kind"]) == (6, "alice", "AI")
        assert (found["provider_id"], found["method"], found["reasons"]) == (ID.hex(), "attested", "as the test says")
        assert (found["mime_type"], found["da_commitment"], found["consumed_height"]) == ("", None, None)
        assert found["expires_at"] == 2 + here.engine.policy.result.result_ttl_blocks
        await rpc_of(here).ask(ALICE, "cap.consumeResult", task_id=job.hex())
        found = await rpc_of(here).ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["status"], found["consumed_height"]) == ("CONSUMED", 3)


@pytest.mark.rule("RES-003", "TTL-001")
async def test_a_result_expires_with_its_job_however_late_it_was_resolved() -> None:
    async with result_node() as here:
        job, submission = await here.submission()
        admitted = here.engine.undurable_state.queue.jobs[job]
        await here.seal(3)
        await here.finish(submission)
        await here.seal()
        found = await rpc_of(here).ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["height_resolved"], found["expires_at"]) == (admitted.height + 3, admitted.expires_height)
        assert admitted.expires_height == admitted.height + here.engine.policy.result.result_ttl_blocks


@pytest.mark.rule("RES-002", "RES-003")
async def test_who_only_looks_sees_how_a_job_ended_where_a_reader_is_refused() -> None:
    async with result_node() as here:
        node = rpc_of(here)
        for job, status, name in (
            (await here.pending(), "PENDING", "NoResultYet"),
            (await here.ended(JobState.EXPIRED), "EXPIRED", "Expired"),
            (await here.ended(JobState.FAILED), "FAILED", "Failed"),
            (await here.cancelled(), "CANCELLED", "Cancelled"),
            (await here.resolved(), "PENDING", "NoResultYet"),
        ):
            assert (await node.refusal(ALICE, "cap.getResult", task_id=job.hex()))[0] == name
            found = await node.ask(AUDITOR, "cap.getResult", task_id=job.hex(), even_pending=True)
            assert (found["status"], found["task_id"], found["caller"]) == (status, job.hex(), "alice")
        assert (await node.refusal(ALICE, "cap.getResult", task_id="00" * 32, even_pending=True))[0] == "NotFound"


@pytest.mark.rule("RES-002")
@pytest.mark.parametrize("projected", [True, False])
async def test_a_result_is_read_right_after_its_block_is_final_whether_its_row_is_there_yet_or_not(
    projected: bool,
) -> None:
    async with result_node(AT_ONCE) as here:
        job = await here.readable()
        await make_final(here, job, projected=projected)
        found = await rpc_of(here).ask(ALICE, "cap.readResult", task_id=job.hex())
        assert (found["status"], found["caller"]) == ("RESOLVED", "alice")


@pytest.mark.rule("RES-005")
@pytest.mark.parametrize("projected", [True, False])
async def test_a_result_that_is_only_a_row_is_used_once_and_shown_as_used_for_ever(projected: bool) -> None:
    async with result_node(AT_ONCE) as here:
        node, job = rpc_of(here), await here.readable()
        await make_final(here, job, projected=projected)
        used = await node.ask(ALICE, "cap.consumeResult", task_id=job.hex(), nonce=7)
        assert not used["is_repeat"]
        await here.seal()
        await make_final(here, job, projected=projected)
        again = await node.ask(ALICE, "cap.consumeResult", task_id=job.hex(), nonce=7)
        assert (again["event"], again["is_repeat"]) == (used["event"], True)
        assert (await node.refusal(ALICE, "cap.consumeResult", task_id=job.hex(), nonce=8))[0] == "AlreadyConsumed"
        found = await node.ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["status"], found["consumed_event"]) == ("CONSUMED", used["event"])


@pytest.mark.rule("RES-005", "SEC-001")
async def test_only_the_caller_uses_a_result_and_an_operator_leaves_its_name() -> None:
    async with result_node() as here:
        node, job = rpc_of(here), await here.readable()
        assert (await node.refusal(BOB, "cap.consumeResult", task_id=job.hex()))[0] == "Forbidden"
        assert (await node.refusal(BOB, "cap.consumeResult", task_id=job.hex(), caller="alice"))[0] == "Forbidden"
        assert (await node.refusal(ANONYMOUS, "cap.consumeResult", task_id=job.hex()))[0] == "Unauthorized"
        assert (await node.refusal(AUDITOR, "cap.consumeResult", task_id=job.hex()))[0] == "Forbidden"
        assert (await node.refusal(OPERATOR, "cap.consumeResult", task_id=job.hex()))[0] == "InvalidParams"
        assert (await node.refusal(OPERATOR, "cap.consumeResult", task_id=job.hex(), caller="bob"))[0] == "Forbidden"
        await node.ask(OPERATOR, "cap.consumeResult", task_id=job.hex(), caller="alice")
        assert node.privileged_acts() == [(OPERATOR.name, "cap.consumeResult")]


@pytest.mark.rule("RES-005", "RES-006")
async def test_a_reorg_undoes_the_consumption_and_the_view_says_so() -> None:
    async with result_node() as here:
        node, job = rpc_of(here), await here.readable()
        await here.seal()
        await node.ask(ALICE, "cap.consumeResult", task_id=job.hex())
        await here.seal()
        await here.roll_back(3)  # the result stays in block 2; the use moves to block 4, which is open
        found = await node.ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["status"], found["consumed_height"]) == ("CONSUMED", 4)
        await here.roll_back(1)  # now both are in block 2
        assert (await node.refusal(ALICE, "cap.readResult", task_id=job.hex()))[0] == "NoResultYet"
        await here.seal()
        found = await node.ask(AUDITOR, "cap.getResult", task_id=job.hex())
        assert (found["status"], found["consumed_height"]) == ("RESOLVED", None)
        await node.ask(ALICE, "cap.consumeResult", task_id=job.hex())


@pytest.mark.rule("JOB-004")
async def test_a_call_for_another_height_than_the_open_one_is_refused() -> None:
    async with result_node() as here:
        node, job = rpc_of(here), await here.readable()
        for height in (2, 4):
            for method in ("cap.readResult", "cap.consumeResult"):
                name, rule, _ = await node.refusal(ALICE, method, task_id=job.hex(), height=height)
                assert (name, rule) == ("HeightMismatch", "JOB-004")
        await node.ask(ALICE, "cap.readResult", task_id=job.hex(), height=3)
        await node.ask(ALICE, "cap.consumeResult", task_id=job.hex(), height=3)
        assert (await node.refusal(ANONYMOUS, "cap.readResult", task_id=job.hex()))[0] == "Unauthorized"


@pytest.mark.rule("JOB-004")
async def test_a_block_that_is_sealed_between_asking_and_deciding_refuses_the_call() -> None:
    async with result_node() as here:
        node, job = rpc_of(here), await here.readable()
        submit = here.access.submit

        async def late(command: Any) -> Any:
            await submit(SEAL)
            return await submit(command)

        here.access.submit = late
        said = await node.raw(ALICE, "cap.consumeResult", task_id=job.hex(), height=3)
        assert said["error"]["data"]["name"] == "HeightMismatch"
        assert not here.engine.undurable_state.consumptions


@pytest.mark.rule("PRF-002")
async def test_refused_proofs_are_listed_with_their_reasons() -> None:
    async with result_node() as here:
        job = await here.refused()
        await here.engine.wait_tables()
        found = await rpc_of(here).ask(AUDITOR, "cap.listVerdicts", task_id=job.hex())
        (row,) = found["rows"]
        assert (row["verdict"], row["method"], row["reasons"]) == ("PROOF_INVALID", "attested", "it is wrong")


@pytest.mark.rule("RES-003")
async def test_a_result_outlives_the_row_of_its_job() -> None:
    async with result_node(AT_ONCE) as here:
        node, job = rpc_of(here), await here.readable()
        await make_final(here, job, projected=True)
        found = await queries.job(here.engine, job)
        assert isinstance(found, Job)
        del here.world.tables.rows["job"][found.event]
        assert (await node.ask(ALICE, "cap.readResult", task_id=job.hex()))["caller"] == "alice"
        await node.ask(ALICE, "cap.consumeResult", task_id=job.hex())


@pytest.mark.rule("RES-002", "RES-005")
async def test_a_use_that_was_asked_for_while_the_block_was_open_counts_when_it_is_decided_after_it() -> None:
    async with result_node(AT_ONCE) as here:
        job = await here.resolved()
        command = await build_consume(here.engine, job, AccountId("alice"), Digest(some_id(5)))
        no = await here.engine.submit(command)
        assert isinstance(no, Refused)
        assert no.name == "NoResultYet"
        await here.seal()  # between asking and deciding; the job is history now
        await evict_final(here.engine)
        assert job not in here.engine.undurable_state.queue.jobs
        assert not isinstance(await here.engine.submit(command), Refused)


@pytest.mark.rule("RES-002", "RES-005")
async def test_a_result_that_was_finalized_by_hand_is_not_used_before_its_block_is_sealed() -> None:
    async with result_node(AT_ONCE) as here:
        job = await here.resolved()
        await here.do(Finalize(here.engine.undurable_state.open_height))
        command = await build_consume(here.engine, job, AccountId("alice"), Digest(some_id(5)))
        no = await here.engine.submit(command)
        assert isinstance(no, Refused)
        assert no.name == "NoResultYet"


@pytest.mark.rule("RES-008")
@pytest.mark.parametrize("step", ["block", "leaves"])
async def test_a_proof_is_of_one_chain_also_where_a_reorg_comes_between_two_reads(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that was alone in block 3 comes into block 2, behind others."""
    async with result_node() as here:
        node = rpc_of(here)
        others = [await here.resolved(b"%d" % number) for number in range(3)]
        await here.seal()
        job = await here.readable(b"mine")  # in block 3
        read_it = getattr(queries, step)

        async def after_a_reorg(*args: Any) -> Any:
            monkeypatch.undo()
            await here.roll_back(1)
            await here.seal(2)  # all four are in block 2, none in block 3
            return await read_it(*args)

        monkeypatch.setattr(queries, step, after_a_reorg)
        said = await node.raw(ANONYMOUS, "cap.proveResult", task_id=job.hex())
        assert said["error"]["data"]["name"] == "NoResultYet"
        for each in (*others, job):
            shown = await node.ask(ANONYMOUS, "cap.proveResult", task_id=each.hex())
            assert result_proof.check(result_proof.parse(shown, "p"), verify).task_id == each
