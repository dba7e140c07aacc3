"""Schedules over JSON-RPC: who may create, read and change them, what is refused, what everybody else sees: nothing."""

from __future__ import annotations

import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, CALLERS, OPERATOR, RpcNode, rpc_node

from holdfast.api.node_access import ANONYMOUS
from holdfast.api.public_events import EventFilter, event_json
from holdfast.core import journal_codec
from holdfast.core.schedule import messages
from holdfast.engine.event_stream import StoredEvent
from holdfast.workers.scheduler import Scheduler

MINUTE_MS = 60_000
PAYLOAD = {"kind": "AI", "spec": {"model": "m", "prompt": "secret words"}}
TERMS = {"name": "often", "payload": PAYLOAD, "max_fee": 10, "interval_ms": MINUTE_MS}
CHANGES = ("cap.pauseSchedule", "cap.resumeSchedule", "cap.deleteSchedule")


async def created(node: RpcNode, **terms: object) -> str:
    receipt = await node.ask(ALICE, "cap.createSchedule", **TERMS | terms)
    return str(receipt["schedule"]["id"])


@pytest.mark.rule("JOB-014")
async def test_a_requester_creates_lists_shows_pauses_resumes_and_deletes_its_schedule() -> None:
    async with rpc_node() as node:
        first = await node.ask(ALICE, "cap.createSchedule", **TERMS)
        again = await node.ask(ALICE, "cap.createSchedule", **TERMS)
        assert (first["is_repeat"], again["is_repeat"], again["event"]) == (False, True, first["event"])
        assert first["schedule"]["payload"] == PAYLOAD
        id_ = first["schedule"]["id"]
        listed = await node.ask(ALICE, "cap.listSchedules")
        assert [each["id"] for each in listed["schedules"]] == [id_]
        await node.ask(ALICE, "cap.pauseSchedule", schedule="often", reason="holiday")
        shown = await node.ask(ALICE, "cap.getSchedule", schedule=id_)
        assert (shown["state"], shown["reason"], shown["next_ms"]) == ("PAUSED", "holiday", None)
        await node.ask(ALICE, "cap.resumeSchedule", schedule="often")
        assert (await node.ask(ALICE, "cap.getSchedule", schedule="often"))["state"] == "ACTIVE"
        await node.ask(ALICE, "cap.deleteSchedule", schedule=id_)
        assert (await node.ask(ALICE, "cap.listSchedules"))["schedules"] == []


@pytest.mark.rule("JOB-014")
async def test_a_firing_is_shown_with_its_job_and_a_refused_one_with_its_reason() -> None:
    async with rpc_node() as node:
        await node.mint(amount=15)
        id_ = await created(node)
        for _ in range(2):
            node.world.clock.monotonic += MINUTE_MS
            await Scheduler(node.engine).run_once()
        shown = await node.ask(ALICE, "cap.getSchedule", schedule=id_)
        fired, refused = shown["firings"]
        job = await node.ask(ALICE, "cap.getJob", task_id=fired["task_id"])
        assert (job["job"]["caller"], job["payload"]) == ("alice", PAYLOAD)
        assert (refused["rule"], refused["refusal"], refused["task_id"]) == ("ESC-001", "InsufficientFunds", "")
        assert (shown["fired"], shown["refused"]) == (1, 1)


@pytest.mark.rule("JOB-014", "JOB-010")
@pytest.mark.parametrize("which", ["id", "name", "of nobody"])
@pytest.mark.parametrize("method", ["cap.getSchedule", *CHANGES])
async def test_to_another_tenant_a_schedule_does_not_exist(method: str, which: str) -> None:
    async with rpc_node() as node:
        id_ = await created(node)
        schedule = {"id": id_, "name": "often", "of nobody": "ff" * 16}[which]
        for params in ({"schedule": schedule}, {"schedule": schedule, "caller": "alice"}):
            name, rule, message = await node.refusal(BOB, method, **params)
            assert (name, rule, message.partition("(")[0].count("alice")) == ("NotFound", "JOB-014", 0)


@pytest.mark.rule("JOB-014", "JOB-010")
async def test_lists_show_a_requester_its_own_and_operators_and_auditors_all() -> None:
    async with rpc_node() as node:
        await created(node)
        await node.ask(BOB, "cap.createSchedule", **TERMS)
        for caller, expected in ((ALICE, ["alice"]), (BOB, ["bob"]), (OPERATOR, ["alice", "bob"])):
            listed = await node.ask(caller, "cap.listSchedules")
            assert [each["caller"] for each in listed["schedules"]] == expected
        of_bob = await node.ask(AUDITOR, "cap.listSchedules", caller="bob")
        assert [each["caller"] for each in of_bob["schedules"]] == ["bob"]
        assert (await node.refusal(ALICE, "cap.listSchedules", caller="bob"))[0] == "Forbidden"


@pytest.mark.rule("JOB-014")
@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_lists_come_page_by_page_from_either_end(limit: int) -> None:
    async with rpc_node() as node:
        for name in ("a", "b", "c"):
            await created(node, name=name)
        for newest_first, caller in (
            (False, {}),
            (True, {}),
            (False, {"caller": "alice"}),
            (True, {"caller": "alice"}),
        ):
            names, cursor = list[str](), 0
            while cursor is not None:
                params = {"limit": limit, "cursor": cursor, "newest_first": newest_first} | caller
                page = await node.ask(OPERATOR, "cap.listSchedules", **params)
                names += [each["name"] for each in page["schedules"]]
                cursor = page["next_cursor"]
            assert names == (["c", "b", "a"] if newest_first else ["a", "b", "c"])


@pytest.mark.rule("JOB-014", "SEC-001")
@pytest.mark.parametrize("role", ["nobody", "provider", "auditor", "treasurer"])
async def test_only_requesters_and_operators_create_and_change_schedules(role: str) -> None:
    async with rpc_node() as node:
        id_ = await created(node)
        assert (await node.refusal(CALLERS[role], "cap.createSchedule", **TERMS))[0] in {"Forbidden", "Unauthorized"}
        for method in CHANGES:
            assert (await node.refusal(CALLERS[role], method, schedule=id_))[0] in {"Forbidden", "Unauthorized"}


@pytest.mark.rule("JOB-014", "SEC-001")
async def test_an_operator_acts_for_an_account_and_leaves_its_name() -> None:
    async with rpc_node() as node:
        await node.ask(OPERATOR, "cap.createSchedule", **TERMS, caller="alice")
        await node.ask(OPERATOR, "cap.pauseSchedule", schedule="often", caller="alice")
        assert (await node.ask(ALICE, "cap.getSchedule", schedule="often"))["state"] == "PAUSED"
        acts = [method for _, method in node.privileged_acts()]
        assert acts == ["cap.createSchedule", "cap.pauseSchedule"]
        assert (await node.refusal(OPERATOR, "cap.createSchedule", **TERMS))[0] == "InvalidParams"
        assert (await node.refusal(ALICE, "cap.createSchedule", **TERMS, caller="bob"))[0] == "Forbidden"


@pytest.mark.rule("JOB-014", "JOB-003")
@pytest.mark.parametrize(
    ("terms", "rule", "fault"),
    [
        ({"payload": {"kind": "AI", "spec": {"model": "m"}}}, "JOB-003", "payload.spec"),
        ({"payload": PAYLOAD | {"proof": "magic"}}, "JOB-011", "payload.proof"),
        ({"max_fee": 0}, "ESC-001", "max_fee"),
        ({"interval_ms": 59_999}, "JOB-014", "interval_ms"),
        ({"cron": "* * * * *"}, "JOB-014", "one of them"),
        ({"cron": "* * *", "interval_ms": 0}, "JOB-014", "5"),
        ({"name": ""}, "JOB-014", "name"),
        ({"input": "not base64!"}, "JOB-003", "base64"),
    ],
)
async def test_a_schedule_whose_jobs_could_never_be_admitted_is_refused_now(
    terms: dict[str, object], rule: str, fault: str
) -> None:
    async with rpc_node() as node:
        name, refused, message = await node.refusal(ALICE, "cap.createSchedule", **TERMS | terms)
        assert (name, refused) == ("InvalidParams", rule)
        assert fault in message


@pytest.mark.rule("JOB-014", "SEC-002")
async def test_a_list_comes_in_pages_in_the_order_of_creation() -> None:
    async with rpc_node() as node:
        ids = [await created(node, name=f"s{number}") for number in range(5)]
        for caller in (ALICE, OPERATOR):
            seen, cursor = list[str](), 0
            while cursor is not None:
                page = await node.ask(caller, "cap.listSchedules", limit=2, cursor=cursor)
                seen += [each["id"] for each in page["schedules"]]
                cursor = page["next_cursor"]
            assert seen == ids
        await node.ask(ALICE, "cap.pauseSchedule", schedule="s3")
        paused = await node.ask(ALICE, "cap.listSchedules", state="PAUSED")
        assert [each["name"] for each in paused["schedules"]] == ["s3"]


@pytest.mark.rule("JOB-014", "JOB-010", "EVT-001")
async def test_events_of_a_schedule_are_shown_to_its_caller_and_to_operators_alone() -> None:
    async with rpc_node() as node:
        await node.mint()
        await created(node)
        node.world.clock.monotonic += MINUTE_MS
        await Scheduler(node.engine).run_once()
        await node.ask(ALICE, "cap.pauseSchedule", schedule="often")
        events = [event for batch in node.world.disk.batches for event in journal_codec.unpack(batch)]
        own = [event for event in events if type(event).__module__ == messages.__name__]
        assert [type(event).public_name for event in own] == ["scheduleCreated", "scheduleFired", "schedulePaused"]
        for event in own:
            assert EventFilter(principal=ALICE).fields(event) == EventFilter(principal=OPERATOR).fields(event)
            assert EventFilter(principal=ALICE).fields(event)
            for principal in (BOB, ANONYMOUS, CALLERS["provider"]):
                assert EventFilter(principal=principal, is_public=True).fields(event) is None
        shown = event_json(StoredEvent(1, 2, own[1]), "scheduleFired")["event"]  # type: ignore[arg-type]
        assert (shown["scheduleId"], len(shown["jobId"])) == (own[1].id.hex(), 64)  # type: ignore[attr-defined]


@pytest.mark.rule("JOB-013")
async def test_a_job_with_a_time_has_it_in_its_receipt_its_view_and_its_quote() -> None:
    async with rpc_node() as node:
        await node.mint()
        at_ms = node.world.clock.wall + 2 * 3_600_000
        request = {"payload": PAYLOAD, "max_fee": 10, "nonce": 1}
        receipt = await node.ask(ALICE, "cap.enqueue", **request, not_before_ms=at_ms)
        again = await node.ask(ALICE, "cap.enqueue", **request, not_before_ms=at_ms)
        assert (receipt["not_before_ms"], again["not_before_ms"], again["is_repeat"]) == (at_ms, at_ms, True)
        shown = await node.ask(ALICE, "cap.getJob", task_id=receipt["task_id"])
        assert (shown["job"]["run_at_ms"], shown["job"]["not_before_ms"]) == (at_ms, at_ms)
        queued = await node.ask(ALICE, "aicf.getJob", task_id=receipt["task_id"])
        assert (queued["position"], queued["job"]["not_before_ms"]) == (None, at_ms)
        quote = await node.ask(ALICE, "cap.getQuote", task_id=receipt["task_id"])
        described = await node.ask(ALICE, "cap.getQuote", payload=PAYLOAD, max_fee=10, not_before_ms=at_ms)
        assert quote["not_before_ms"] == described["not_before_ms"] == at_ms
        far = node.world.clock.wall + 400 * 24 * 3_600_000
        assert (await node.refusal(ALICE, "cap.enqueue", **request, not_before_ms=far))[1] == "JOB-013"
        assert (await node.refusal(ALICE, "cap.getQuote", payload=PAYLOAD, not_before_ms=far))[1] == "JOB-013"
