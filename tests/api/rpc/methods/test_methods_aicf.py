"""The queue's view at the doors: places, holders, leases with their marks; what a provider holds; balances."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.rpc.methods.test_methods_quotes import add_provider
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, CALLERS, OPERATOR, RpcNode, job, rpc_node
from tests.core.blocks import SEAL, final_after
from tests.simulation.world import evict_final

from holdfast.api.node_access import Principal
from holdfast.api.rpc.methods import METHODS
from holdfast.api.rpc.openrpc import document
from holdfast.core.base.values import AccountId, ProviderId, TaskId
from holdfast.core.key.model import Role
from holdfast.core.lease.messages import AckLease, FailLease
from holdfast.core.match.messages import Match

pytestmark = pytest.mark.rule("RPC-001")
NOBODY = CALLERS["nobody"]
LEASE_MS, ACK_MS = 600_000, 5_000


async def enqueued(house: RpcNode, count: int, **told: object) -> list[str]:
    """Jobs in the order in which they will be given."""
    await house.mint(amount=10_000, number=500)
    asked = [job() | {"nonce": n, "max_fee": 40 - n} | told for n in range(count)]
    return [(await house.ask(ALICE, "cap.enqueue", **each))["task_id"] for each in asked]


async def jobs(house: RpcNode, **asked: object) -> dict[str, Any]:
    await house.engine.wait_tables()
    found: dict[str, Any] = await house.ask(AUDITOR, "aicf.listJobs", **asked)
    return found


@pytest.mark.rule("LEA-002")
async def test_a_job_is_shown_as_the_queue_sees_it_from_its_place_to_its_leases() -> None:
    async with rpc_node(final_after(0)) as house:
        first, second = await enqueued(house, 2)
        shown = await house.ask(AUDITOR, "aicf.getJob", task_id=second)
        assert (shown["position"], shown["waiting"], shown["leases"]) == (1, 2, [])
        assert shown["job"].items() >= {"state": "QUEUED", "attempts": 0, "provider_id": None, "parent": None}.items()
        oak = await add_provider(house, 1, ["m"], slots=1)
        await house.access.submit(Match())
        held = await house.ask(AUDITOR, "aicf.getJob", task_id=first)
        now_ms = house.engine.replication_status().tip.time_ms
        (lease,) = held["leases"]
        assert (held["position"], held["waiting"]) == (None, 1)
        assert (held["job"]["state"], held["job"]["attempts"], held["job"]["provider_id"]) == ("ASSIGNED", 1, oak.hex())
        assert (held["job"]["lease_id"], held["job"]["deadline_ms"]) == (lease["id"], now_ms + LEASE_MS)
        assert (lease["ack_by_ms"], lease["renew_by_ms"]) == (now_ms + ACK_MS, now_ms + 360_000)
        assert held["as_of"] == house.engine.undurable_state.last_event


@pytest.mark.rule("RTY-002")
async def test_a_job_that_failed_says_what_failed_and_when_it_is_tried_again() -> None:
    async with rpc_node(final_after(0)) as house:
        oak = await add_provider(house, 1, ["m"])
        (task,) = await enqueued(house, 1)
        await house.access.submit(Match())
        lease = house.engine.undurable_state.leases.by_job[TaskId(bytes.fromhex(task))]
        await house.access.submit(FailLease(lease.id, oak))
        await house.engine.wait_tables()
        shown = await house.ask(AUDITOR, "aicf.getJob", task_id=task)
        told = shown["job"]
        assert (told["state"], told["failures"], told["reason"]) == ("QUEUED", 1, "PROVIDER_FAIL")
        assert (
            told["not_before_ms"] == house.engine.undurable_state.queue.jobs[TaskId(bytes.fromhex(task))].not_before_ms
        )
        assert told["not_before_ms"] > house.engine.replication_status().tip.time_ms
        assert (shown["position"], [each["status"] for each in shown["leases"]]) == (None, ["CANCELLED"])


async def test_jobs_are_listed_by_state_kind_and_caller_page_by_page() -> None:
    async with rpc_node(final_after(0)) as house:
        tasks = await enqueued(house, 5)
        await add_provider(house, 1, ["m"], slots=2)
        await house.access.submit(Match())
        assert [each["task_id"] for each in (await jobs(house))["jobs"]] == tasks
        assert [each["task_id"] for each in (await jobs(house, state="ASSIGNED"))["jobs"]] == tasks[:2]
        assert (await jobs(house, kind="QUANTUM"))["jobs"] == []
        assert len((await jobs(house, caller="alice", kind="AI", state="QUEUED"))["jobs"]) == 3
        seen, cursor = list[str](), 0
        while True:
            page = await jobs(house, limit=2, cursor=cursor)
            seen += [each["task_id"] for each in page["jobs"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert seen == tasks
        assert page["as_of"] == house.engine.replication_status().tables_as_of
        assert (await house.refusal(AUDITOR, "aicf.listJobs", limit=0))[0] == "InvalidParams"
        assert (await house.refusal(AUDITOR, "aicf.listJobs", state="LOST"))[0] == "InvalidParams"


async def test_what_a_provider_holds_is_listed_as_it_is_now_page_by_page() -> None:
    async with rpc_node(final_after(0)) as house:
        tasks = await enqueued(house, 3)
        oak = (await add_provider(house, 1, ["m"], slots=8)).hex()
        idle = (await add_provider(house, 2, ["x"])).hex()
        await house.access.submit(Match())
        found = await house.ask(AUDITOR, "aicf.listJobs", provider_id=oak, limit=2)
        assert ([each["task_id"] for each in found["jobs"]], found["jobs"][0]["provider_id"]) == (tasks[:2], oak)
        rest = await house.ask(AUDITOR, "aicf.listJobs", provider_id=oak, limit=2, cursor=found["next_cursor"])
        assert ([each["task_id"] for each in rest["jobs"]], rest["next_cursor"]) == (tasks[2:], None)
        assert (await house.ask(AUDITOR, "aicf.listJobs", provider_id=oak, kind="QUANTUM"))["jobs"] == []
        assert (await house.ask(AUDITOR, "aicf.listJobs", provider_id=oak, caller="bob"))["jobs"] == []
        assert (await house.ask(AUDITOR, "aicf.listJobs", provider_id=idle))["jobs"] == []
        assert (await house.refusal(AUDITOR, "aicf.listJobs", provider_id="ab" * 32))[0] == "NotFound"
        lease = house.engine.undurable_state.leases.by_job[TaskId(bytes.fromhex(tasks[0]))]
        await house.access.submit(AckLease(lease.id, lease.provider_id))
        await house.access.submit(FailLease(lease.id, lease.provider_id))
        left = await house.ask(AUDITOR, "aicf.listJobs", provider_id=oak)
        assert [each["task_id"] for each in left["jobs"]] == tasks[1:]
        assert left["as_of"] == house.engine.undurable_state.last_event


async def test_a_job_whose_money_is_final_is_still_shown() -> None:
    async with rpc_node(final_after(0)) as house:
        (task,) = await enqueued(house, 1)
        await house.ask(ALICE, "cap.cancel", task_id=task)
        await house.access.submit(SEAL)
        await evict_final(house.engine)
        assert house.engine.undurable_state.queue.jobs == {}
        shown = await house.ask(AUDITOR, "aicf.getJob", task_id=task)
        assert (shown["job"]["state"], shown["position"], shown["job"]["reason"]) == ("CANCELLED", None, "CANCELLED")
        assert (await house.refusal(AUDITOR, "aicf.getJob", task_id="ab" * 32))[0] == "NotFound"


@pytest.mark.rule("SEC-001", "ESC-001")
async def test_a_balance_is_for_its_owner_for_operators_and_for_auditors() -> None:
    async with rpc_node(final_after(0)) as house:
        oak = await add_provider(house, 1, ["m"])
        await enqueued(house, 1, max_fee=40)
        mine = await house.ask(ALICE, "aicf.getBalance")
        told = {"account": "alice", "available": 9_960, "held": 40, "pending": 0, "stake": 0, "unstaking": 0}
        assert mine == told | {"as_of": house.engine.undurable_state.last_event}
        for who in (OPERATOR, AUDITOR, ALICE):
            assert await house.ask(who, "aicf.getBalance", account="alice") == mine
        staked = await house.ask(AUDITOR, "aicf.getBalance", provider_id=oak.hex())
        assert (staked["account"], staked["stake"]) == ("oak-1", 10_000)
        own = Principal("c" * 16, Role.PROVIDER, AccountId("oak-1"))
        assert await house.ask(own, "aicf.getBalance") == staked
        for who, asked, name in (
            (NOBODY, {"account": "alice"}, "Unauthorized"),
            (BOB, {"account": "alice"}, "Forbidden"),
            (BOB, {"provider_id": oak.hex()}, "Forbidden"),
            (own, {"account": "alice"}, "Forbidden"),
            (BOB, {}, "NotFound"),
            (OPERATOR, {}, "InvalidParams"),
            (OPERATOR, {"account": "a", "provider_id": oak.hex()}, "InvalidParams"),
            (OPERATOR, {"provider_id": ProviderId(b"x" * 32).hex()}, "NotFound"),
        ):
            assert (await house.refusal(who, "aicf.getBalance", **asked))[0] == name, asked


async def test_the_queue_shows_what_waits_by_kind_and_since_when() -> None:
    async with rpc_node(final_after(0)) as house:
        assert (await house.ask(NOBODY, "queue.getStatus"))["waiting"] == {"AI": 0, "QUANTUM": 0, "COMPUTE": 0}
        first_ms = house.world.clock.wall
        await enqueued(house, 2)
        house.world.clock.monotonic += 9_000
        await house.ask(ALICE, "cap.enqueue", **job(nonce=99))
        shown = await house.ask(NOBODY, "queue.getStatus")
        assert (shown["waiting"], shown["oldest_ms"], shown["retrying"]) == (
            {"AI": 3, "QUANTUM": 0, "COMPUTE": 0},
            {"AI": first_ms},
            0,
        )
        assert (shown["time_ms"], shown["as_of"]) == (first_ms + 9_000, house.engine.undurable_state.last_event)
        oak = await add_provider(house, 1, ["m"], slots=1)
        await house.access.submit(Match())
        (lease,) = house.engine.undurable_state.leases.by_id.values()
        await house.access.submit(FailLease(lease.id, oak))
        again = await house.ask(NOBODY, "queue.getStatus")
        assert (again["waiting"]["AI"], again["retrying"]) == (3, 1)


def test_all_reads_of_the_source_are_described() -> None:
    reads = {"listProviders", "getProvider", "getBalance", "listJobs", "getJob"}
    described = {each["name"]: each for each in document(METHODS)["methods"]}
    for name in reads:
        assert described[f"aicf.{name}"]["summary"].endswith(".")
        assert described[f"aicf.{name}"]["result"]["schema"]
