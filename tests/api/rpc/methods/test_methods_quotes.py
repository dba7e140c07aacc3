"""Quotes at the doors: who could run a job, at what cost and place, and for everybody else the filter that refuses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, CALLERS, OPERATOR, RpcNode, job, rpc_node
from tests.core.blocks import final_after

from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, ProviderId
from holdfast.core.lease.messages import DeclineLease
from holdfast.core.match.messages import Match
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.state_digest import digest
from holdfast.engine.queries.quote import NAMED_MAX

pytestmark = pytest.mark.rule("JOB-008")
PAYLOAD: dict[str, Any] = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}, "units": 3}


async def add_provider(house: RpcNode, number: int, models: list[str], price: int = 2, slots: int = 4) -> ProviderId:
    public, account = number.to_bytes(32, "big"), AccountId(f"oak-{number}")
    await house.mint(account, 10_000, 1_000 + number)
    told = (f"oak-{number}", account, canonical({"AI": {"models": models}}), "eu", price, slots)
    await house.access.submit(Register(public, *told, house.world.clock.wall + 10**10))
    id_ = provider_id(public)
    await house.access.submit(Stake(id_, Amount(10_000), number.to_bytes(32, "big")))
    await house.access.submit(Heartbeat(id_, slots))
    return id_


async def test_a_quote_names_who_could_the_cheapest_first_and_why_the_others_could_not() -> None:
    async with rpc_node(final_after(0)) as house:
        dear, cheap = await add_provider(house, 1, ["m"], price=7), await add_provider(house, 2, ["m"], price=2)
        other = await add_provider(house, 3, ["x"])
        before = digest(house.engine.undurable_state)
        found = await house.ask(ALICE, "cap.getQuote", payload=PAYLOAD)
        assert [(each["provider_id"], each["cost"]) for each in found["providers"]] == [
            (cheap.hex(), 6),
            (dear.hex(), 21),
        ]
        assert found["refused"] == [{"provider_id": other.hex(), "name": "oak-3", "why_not": "model does not fit"}]
        assert (found["could"], found["could_not"], found["position"], found["waiting"]) == (2, 1, 0, 0)
        assert digest(house.engine.undurable_state) == before, "a quote changes nothing"


async def test_a_quote_says_how_many_jobs_stand_before_it() -> None:
    async with rpc_node(final_after(0)) as house:
        await house.mint()
        for nonce, fee in enumerate((10, 20, 30)):
            await house.ask(ALICE, "cap.enqueue", **job(nonce=nonce, max_fee=fee))
        places = [
            (await house.ask(ALICE, "cap.getQuote", payload=job()["payload"], max_fee=fee))["position"]
            for fee in (10, 15, 25, 99)
        ]
        assert places == [3, 2, 1, 0]


async def test_a_job_that_waits_can_be_asked_for_by_its_id_and_one_that_runs_cannot() -> None:
    async with rpc_node(final_after(0)) as house:
        await house.mint()
        first = await house.ask(ALICE, "cap.enqueue", **job(nonce=1, max_fee=9))
        second = await house.ask(ALICE, "cap.enqueue", **job(nonce=2, max_fee=5))
        found = await house.ask(ALICE, "cap.getQuote", task_id=second["task_id"])
        assert (found["position"], found["waiting"], found["could"]) == (1, 2, 0)
        assert (await house.ask(AUDITOR, "cap.getQuote", task_id=first["task_id"]))["position"] == 0
        assert (await house.refusal(BOB, "cap.getQuote", task_id=first["task_id"]))[0] == "Forbidden"
        assert (await house.refusal(ALICE, "cap.getQuote", task_id="ab" * 32))[0] == "NotFound"
        await add_provider(house, 1, ["m"])
        await house.access.submit(Match())
        _, rule, says = await house.refusal(ALICE, "cap.getQuote", task_id=first["task_id"])
        assert (rule, "is ASSIGNED" in says) == ("JOB-008", True)


@pytest.mark.parametrize(("late_ms", "could"), [(-1, 0), (0, 1)])
async def test_a_quote_is_of_now_also_where_nothing_was_written_for_a_while(late_ms: int, could: int) -> None:
    async with rpc_node(final_after(0)) as house:
        await house.mint()
        await add_provider(house, 1, ["m"])
        waiting = await house.ask(ALICE, "cap.enqueue", **job())
        await house.access.submit(Match())
        (lease,) = house.engine.undurable_state.leases.by_id.values()
        await house.access.submit(DeclineLease(lease.id, lease.provider_id))
        house.world.clock.monotonic += house.engine.policy.lease.decline_cooldown_ms + late_ms
        assert (await house.ask(ALICE, "cap.getQuote", task_id=waiting["task_id"]))["could"] == could


async def test_free_slots_are_those_that_the_quota_leaves() -> None:
    async with rpc_node(final_after(0)) as house:
        await add_provider(house, 1, ["m"], slots=100)
        (found,) = (await house.ask(ALICE, "cap.getQuote", payload=PAYLOAD))["providers"]
        assert found["free_slots"] == house.engine.policy.quota.leases_per_provider_max


async def test_long_lists_are_cut_and_counted() -> None:
    async with rpc_node(final_after(0)) as house:
        for number in range(1, NAMED_MAX + 6):
            await add_provider(house, number, ["x"])
        found = await house.ask(OPERATOR, "cap.getQuote", payload=PAYLOAD)
        assert (len(found["refused"]), found["could_not"], found["could"]) == (NAMED_MAX, NAMED_MAX + 5, 0)
        other = PAYLOAD | {"spec": {"model": "x", "prompt": "hi"}}
        found = await house.ask(OPERATOR, "cap.getQuote", payload=other)
        assert (len(found["providers"]), found["could"]) == (NAMED_MAX, NAMED_MAX + 5)


async def test_a_job_can_name_whom_it_allows_and_whom_it_denies() -> None:
    async with rpc_node(final_after(0)) as house:
        one, two = await add_provider(house, 1, ["m"]), await add_provider(house, 2, ["m"])
        for lists, names in (
            ({"allow": [one.hex()]}, [one.hex()]),
            ({"deny": [one.hex()]}, [two.hex()]),
            ({"allow": []}, []),
            ({"allow": [one.hex(), two.hex()], "deny": [two.hex()]}, [one.hex()]),
        ):
            found = await house.ask(ALICE, "cap.getQuote", payload=PAYLOAD | lists)
            assert [each["provider_id"] for each in found["providers"]] == names
            assert {each["why_not"] for each in found["refused"]} <= {"the job denies it", "the job allows only others"}


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({}, "task_id or payload"),
        ({"task_id": "00" * 32, "payload": PAYLOAD}, "task_id or payload"),
        ({"payload": {"kind": "AI", "spec": {}}}, "payload.spec.model"),
        ({"payload": PAYLOAD | {"deny": ["zz"]}}, "payload.deny[0]"),
        ({"payload": PAYLOAD, "max_fee": 0}, "max_fee"),
    ],
)
async def test_what_is_wrong_with_a_question_is_named(asked: dict[str, Any], path: str) -> None:
    async with rpc_node() as house:
        name, _, says = await house.refusal(ALICE, "cap.getQuote", **asked)
        assert (name, path in says) == ("InvalidParams", True), says


@pytest.mark.parametrize("who", ["nobody", "provider"])
async def test_a_quote_is_for_those_who_may_ask_for_work(who: str) -> None:
    async with rpc_node() as house:
        assert (await house.refusal(CALLERS[who], "cap.getQuote", payload=PAYLOAD))[0] in ("Unauthorized", "Forbidden")


async def test_a_requester_asks_for_itself_alone() -> None:
    async with rpc_node() as house:
        assert (await house.refusal(ALICE, "cap.getQuote", payload=PAYLOAD, caller="bob"))[0] == "Forbidden"
