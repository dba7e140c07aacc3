"""Jobs at the doors: receipts that anybody can compute again, one's own jobs alone, operators under their names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.api.rpc.methods.test_methods_quotes import add_provider
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, CALLERS, OPERATOR, PROVIDER, job, rpc_node
from tests.core.blocks import SEAL, final_after
from tests.core.commands import DEVELOPMENT
from tests.simulation.world import evict_final

from holdfast.api.node_access import HOST_CALL, Principal
from holdfast.core import job as formulas
from holdfast.core.base.canonical import canonical
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import ChainId, Height, Tier
from holdfast.core.key.model import Role
from holdfast.core.match.messages import Match
from holdfast.core.policy import AdmissionPolicy
from holdfast.core.queue.messages import JobAdmitted, JobCancelled
from holdfast.core.queue.priority import sort_priority as priority

LARGE = "large " * 1_000


# ------------------------------------------------------------------------------------------------ receipts


@pytest.mark.rule("JOB-001", "JOB-006", "CMP-001")
@pytest.mark.parametrize("prompt", ["hello", LARGE, "ümläut 𝔘"])
async def test_everything_in_a_receipt_can_be_computed_again_from_the_request(prompt: str) -> None:
    async with rpc_node() as house:
        await house.mint()
        await house.engine.submit(SEAL)
        asked = job(prompt, nonce=7, max_fee=25)
        receipt = await house.ask(ALICE, "cap.enqueue", **asked)
        call = {"max_fee": 25, "payload": asked["payload"]}
        tx = formulas.tx_hash(ChainId(1337), b"alice", 7, call)
        id_ = formulas.task_id(ChainId(1337), Height(2), tx, b"alice", asked["payload"])
        raw = canonical(asked["payload"])
        now_ms = house.engine.replication_status().tip.time_ms
        assert receipt == {
            "task_id": id_.hex(),
            "kind": "AI",
            "caller": "alice",
            "height": 2,
            "tx_hash": tx.hex(),
            "nonce": 7,
            "request_hash": formulas.request_hash(raw).hex(),
            "earliest_read_height": 3,
            "reserved": 25,
            "enqueue_ms": now_ms,
            "expires_ms": now_ms + 24 * 3_600_000,
            "expires_height": 2 + 43_200,
            "event": house.engine.undurable_state.last_event,
            "is_repeat": False,
            "not_before_ms": 0,
        }
        shown = await house.ask(ALICE, "cap.getJob", task_id=id_.hex())
        assert shown["payload"] == asked["payload"]
        assert shown["job"]["priority"] == priority(25, len(raw), Tier.FREE, now_ms, DEVELOPMENT.priority)
        assert (shown["earliest_read_height"], shown["expires_height"]) == (3, 43_202)


@pytest.mark.rule("JOB-002")
async def test_the_same_request_again_gives_the_first_receipt_whatever_happened_since() -> None:
    async with rpc_node(final_after(0)) as house:
        await house.mint()
        first = await house.ask(ALICE, "cap.enqueue", **job(nonce=7))
        again = first | {"is_repeat": True}
        assert await house.ask(ALICE, "cap.enqueue", **job(nonce=7)) == again
        await house.ask(ALICE, "cap.raiseFee", task_id=first["task_id"], max_fee=99)
        assert await house.ask(ALICE, "cap.enqueue", **job(nonce=7)) == again
        await house.ask(ALICE, "cap.cancel", task_id=first["task_id"])
        await house.engine.submit(SEAL)
        await evict_final(house.engine)
        assert house.engine.undurable_state.queue.jobs == {}
        assert await house.ask(ALICE, "cap.enqueue", **job(nonce=7)) == again


@pytest.mark.rule("JOB-002")
async def test_a_retry_with_an_idempotency_key_gives_the_first_receipt_though_its_nonce_was_drawn() -> None:
    async with rpc_node() as house:
        await house.mint()
        first = await house.ask(ALICE, "cap.enqueue", **job(idempotency_key="retry-1"))
        assert await house.ask(ALICE, "cap.enqueue", **job(idempotency_key="retry-1")) == first | {"is_repeat": True}
        assert (await house.refusal(ALICE, "cap.enqueue", **job("other", idempotency_key="retry-1")))[0] == "IdReused"
        other = await house.ask(ALICE, "cap.enqueue", **job(idempotency_key="retry-2"))
        assert other["task_id"] != first["task_id"]


@pytest.mark.rule("JOB-002")
async def test_an_idempotency_key_counts_for_the_api_key_that_used_it() -> None:
    async with rpc_node() as house:
        await house.mint()
        first = await house.ask(ALICE, "cap.enqueue", **job(idempotency_key="k"))
        elsewhere = msgspec.structs.replace(ALICE, name="f" * 16)
        assert (await house.ask(elsewhere, "cap.enqueue", **job(idempotency_key="k")))["task_id"] != first["task_id"]


@pytest.mark.rule("JOB-002")
@pytest.mark.parametrize(("key", "is_good"), [("", False), ("x", True), ("ä" * 127, True), ("ä" * 128, False)])
async def test_an_idempotency_key_has_between_one_and_255_bytes(key: str, is_good: bool) -> None:
    async with rpc_node() as house:
        await house.mint()
        if is_good:
            await house.ask(ALICE, "cap.enqueue", **job(idempotency_key=key))
        else:
            assert (await house.refusal(ALICE, "cap.enqueue", **job(idempotency_key=key)))[:2] == (
                "InvalidParams",
                "JOB-002",
            )


@pytest.mark.rule("JOB-003", "JOB-005", "SEC-001")
@pytest.mark.parametrize(
    ("told", "name", "says"),
    [
        ({"payload": {"kind": "AI", "spec": {"model": "m"}}}, "InvalidParams", "payload.spec: give either"),
        ({"payload": {"kind": "AI", "spec": {"prompt": "x"}}}, "InvalidParams", "payload.spec.model: missing"),
        ({"payload": {"kind": "TEA", "spec": {}}}, "InvalidParams", "payload.kind"),
        ({"payload": 7}, "InvalidParams", "params: payload"),
        ({"max_fee": 0}, "InvalidParams", "max_fee"),
        ({"max_fee": 1.5}, "InvalidParams", "max_fee"),
        ({"nonce": -1}, "InvalidParams", "nonce"),
        ({"max_fee": 1_001}, "InsufficientFunds", "1000 available"),
        ({"caller": "bob"}, "Forbidden", "not alice's"),
        ({"tier": "PREMIUM"}, "InvalidParams", "tier: no such field"),
        (job("x" * 600), "TooLarge", "at most 500"),
    ],
)
async def test_a_refused_enqueue_is_named_and_has_no_effect(told: dict[str, object], name: str, says: str) -> None:
    policy = msgspec.structs.replace(DEVELOPMENT, admission=AdmissionPolicy(payload_bytes_max=500))
    async with rpc_node(policy) as house:
        await house.mint()
        found = await house.refusal(ALICE, "cap.enqueue", **job() | told)
        assert found[0] == name
        assert says in found[2]


@pytest.mark.rule("JOB-005")
async def test_a_full_queue_says_so_to_everybody() -> None:
    told = AdmissionPolicy(queue_depth_max=4, in_flight_per_requester_max=4, back_pressure_ppm=250_000)
    async with rpc_node(msgspec.structs.replace(DEVELOPMENT, admission=told)) as house:
        for number, owner in enumerate(("alice", "bob", "carol"), start=1):
            await house.mint(owner, number=number)
        for nonce in range(2):
            await house.ask(ALICE, "cap.enqueue", **job(nonce=nonce))
        assert (await house.refusal(ALICE, "cap.enqueue", **job("more")))[:2] == ("BackPressure", "JOB-005")
        await house.ask(BOB, "cap.enqueue", **job())
        await house.ask(OPERATOR, "cap.enqueue", **job(caller="carol"))
        for visitor in (ALICE, BOB):
            assert (await house.refusal(visitor, "cap.enqueue", **job("more")))[:2] == ("QueueFull", "JOB-005")


# ------------------------------------------------------------------------------------------------ one's own


@pytest.mark.rule("SEC-001", "JOB-008")
async def test_a_requester_acts_on_its_own_jobs_alone_and_leaves_no_name() -> None:
    async with rpc_node() as house:
        await house.mint()
        id_ = (await house.ask(ALICE, "cap.enqueue", **job()))["task_id"]
        assert (await house.refusal(BOB, "cap.cancel", task_id=id_))[0] == "Forbidden"
        assert (await house.refusal(BOB, "cap.raiseFee", task_id=id_, max_fee=50))[0] == "Forbidden"
        await house.ask(ALICE, "cap.raiseFee", task_id=id_, max_fee=50)
        await house.ask(ALICE, "cap.cancel", task_id=id_)
        assert house.privileged_acts() == [(OPERATOR.name, "account.mint")]
        for method, told in (("cap.cancel", {}), ("cap.raiseFee", {"max_fee": 60})):
            name, rule, says = await house.refusal(ALICE, method, task_id=id_, **told)
            assert (name, rule) == ("Refused", "JOB-007")
            assert "CANCELLED is final" in says


@pytest.mark.rule("SEC-001")
async def test_what_an_operator_does_for_somebody_is_recorded_in_the_batch_of_what_was_done() -> None:
    async with rpc_node() as house:
        await house.mint()
        assert (await house.refusal(OPERATOR, "cap.enqueue", **job()))[2] == "params: caller: missing"
        receipt = await house.ask(OPERATOR, "cap.enqueue", **job(caller="alice"))
        signed, done = house.last_batch()
        assert signed == PrivilegedActRecorded(OPERATOR.name, "cap.enqueue", 1)
        assert isinstance(done, JobAdmitted)
        assert receipt["event"] == house.engine.undurable_state.last_event
        await house.ask(OPERATOR, "cap.raiseFee", task_id=receipt["task_id"], max_fee=50)
        await house.ask(CALLERS["local"], "cap.cancel", task_id=receipt["task_id"])
        assert isinstance(house.last_batch()[1], JobCancelled)
        assert house.privileged_acts()[1:] == [
            (OPERATOR.name, "cap.enqueue"),
            (OPERATOR.name, "cap.raiseFee"),
            ("local", "cap.cancel"),
        ]


@pytest.mark.rule("SEC-001")
async def test_what_is_asked_twice_or_refused_leaves_one_name_or_none() -> None:
    async with rpc_node() as house:
        await house.mint()
        for _ in range(3):
            receipt = await house.ask(OPERATOR, "cap.enqueue", **job(caller="alice", nonce=1))
        await house.ask(OPERATOR, "cap.raiseFee", task_id=receipt["task_id"], max_fee=10)
        await house.refusal(OPERATOR, "cap.raiseFee", task_id=receipt["task_id"], max_fee=9)
        await house.refusal(OPERATOR, "cap.cancel", task_id="00" * 32)
        assert house.privileged_acts() == [(OPERATOR.name, "account.mint"), (OPERATOR.name, "cap.enqueue")]


@pytest.mark.rule("SEC-001")
async def test_money_is_shown_to_its_owner_to_operators_and_auditors() -> None:
    async with rpc_node() as house:
        await house.mint()
        for visitor in (ALICE, OPERATOR, AUDITOR):
            assert (await house.ask(visitor, "account.getAccount", owner="alice"))["available"] == 1_000
        for visitor in (BOB, PROVIDER):
            assert (await house.refusal(visitor, "account.getAccount", owner="alice"))[0] == "Forbidden"
        assert (await house.refusal(BOB, "account.listReservations", owner="alice"))[0] == "Forbidden"
        assert (await house.ask(BOB, "account.listReservations"))["rows"] == []


# ------------------------------------------------------------------------------------------------ lists


@pytest.mark.rule("RPC-001", "ENG-004")
async def test_jobs_are_listed_in_the_order_of_admission_by_caller_status_kind_height_and_page() -> None:
    async with rpc_node() as house:
        await house.mint()
        await house.mint("bob", number=2)
        ids = []
        for n in range(6):
            ids.append((await house.ask((ALICE, BOB)[n % 2], "cap.enqueue", **job(nonce=n)))["task_id"])
            await house.engine.submit(SEAL)
        await house.ask(ALICE, "cap.cancel", task_id=ids[2])
        await house.engine.wait_tables()

        async def listed(**told: object) -> list[int]:
            found = await house.ask(AUDITOR, "cap.listJobs", **told)
            assert found["as_of"] == house.engine.undurable_state.last_event
            return [ids.index(row["id"]) for row in found["rows"]]

        assert await listed() == [0, 1, 2, 3, 4, 5]
        assert await listed(caller="alice") == [0, 2, 4]
        assert await listed(caller="alice", status="QUEUED") == [0, 4]
        assert await listed(status="CANCELLED") == [2]
        assert await listed(status="PENDING") == [0, 1, 3, 4, 5]
        pending = [await house.ask(ALICE, "cap.listJobs", status="PENDING", limit=3)]
        while (cursor := pending[-1]["next_after"]) is not None:
            pending.append(await house.ask(ALICE, "cap.listJobs", status="PENDING", limit=3, cursor=cursor))
        assert [ids.index(row["id"]) for page in pending for row in page["rows"]] == [0, 1, 3, 4, 5]
        await add_provider(house, 1, ["m"], slots=1)
        await house.access.submit(Match())
        await house.engine.wait_tables()
        assert len(await listed(status="ASSIGNED")) == 1
        assert await listed(status="PENDING") == [0, 1, 3, 4, 5]
        assert await listed(kind="QUANTUM") == []
        assert await listed(from_height=4) == [3, 4, 5]
        page = await house.ask(ALICE, "cap.listJobs", limit=4)
        assert await listed(cursor=page["next_after"]) == [4, 5]
        assert (await house.refusal(ALICE, "cap.listJobs", limit=0))[0] == "InvalidParams"
        assert (await house.refusal(ALICE, "cap.listJobs", status="LOST"))[0] == "InvalidParams"
        assert (await house.refusal(ALICE, "cap.getJob", task_id="00" * 32))[:2] == ("NotFound", "JOB-007")


@pytest.mark.rule("SEC-002")
async def test_a_list_from_a_height_reads_no_row_below_it_in_either_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rpc_node() as house:
        await house.mint()
        for n in range(4):
            await house.ask(ALICE, "cap.enqueue", **job(nonce=n))
            await house.engine.submit(SEAL)
        await house.engine.wait_tables()
        tables, read = house.access.source.tables, list[Any]()
        rows = tables.page

        async def watched(table: str, match: Any, after: Any, limit: int, **told: Any) -> Any:
            lowest = match.get("event>=", 0) if told.get("is_newest_first") else after + 1
            read.extend(key for key in house.world.tables.rows[table] if table == "job" and key >= lowest)
            return await rows(table, match, after, limit, **told)

        monkeypatch.setattr(tables, "page", watched)
        for height, count in ((3, 2), (4, 1), (9, 0)):
            shown = []
            for newest_first in (False, True):
                read.clear()
                asked = {"status": "QUEUED", "from_height": height, "newest_first": newest_first}
                shown.append([row["event"] for row in (await house.ask(AUDITOR, "cap.listJobs", **asked))["rows"]])
                assert len(read) == count, asked
            assert (shown[0], len(shown[0])) == (shown[1][::-1], count)


# ------------------------------------------------------------------------------------------------ from contracts


CONTRACTS = Principal("f" * 16, Role.OPERATOR, scopes=("cap.enqueue", HOST_CALL))


@pytest.mark.rule("JOB-004", "JOB-001", "JOB-002")
async def test_whoever_executes_contracts_says_in_which_transaction_and_block_a_job_is() -> None:
    async with rpc_node() as house:
        await house.mint()
        await house.engine.submit(SEAL)
        bound = {"chain_id": 1337, "height": 2, "tx_hash": "ab" * 32, "caller": "alice"}
        for caller in (CONTRACTS, OPERATOR):
            receipt = await house.ask(caller, "cap.enqueue", **job("hi"), **bound)
            payload = job("hi")["payload"]
            assert (
                receipt["task_id"]
                == formulas.task_id(ChainId(1337), Height(2), bytes.fromhex("ab" * 32), b"alice", payload).hex()
            )
            assert receipt["is_repeat"] is (caller is OPERATOR)


@pytest.mark.rule("JOB-004", "SEC-001")
@pytest.mark.parametrize(
    ("caller", "change", "expected"),
    [
        (ALICE, {}, "Forbidden"),
        (Principal("g" * 16, Role.OPERATOR, scopes=("cap.enqueue",)), {}, "Forbidden"),
        (CONTRACTS, {"chain_id": 1}, "ChainMismatch"),
        (CONTRACTS, {"height": 3}, "HeightMismatch"),
        (CONTRACTS, {"height": None}, "InvalidParams"),
        (CONTRACTS, {"tx_hash": "ab"}, "InvalidParams"),
        (CONTRACTS, {"nonce": 1}, "InvalidParams"),
    ],
)
async def test_a_transaction_that_may_not_be_named_or_is_not_this_one_is_refused(
    caller: Principal, change: dict[str, object], expected: str
) -> None:
    async with rpc_node() as house:
        await house.mint()
        await house.engine.submit(SEAL)
        bound = {"chain_id": 1337, "height": 2, "tx_hash": "ab" * 32, "caller": "alice"} | change
        name, _, _ = await house.refusal(caller, "cap.enqueue", **job("hi"), **bound)
        assert name == expected
