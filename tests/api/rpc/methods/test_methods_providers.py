"""Providers over JSON-RPC: looked at in pages, moved by operators under their names, and by whoever's they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, OPERATOR, PROVIDER, RpcNode, rpc_node
from tests.core.commands import some_id
from tests.core.core_driver import YEAR_MS, public

from holdfast.api import public_events
from holdfast.api.node_access import Principal
from holdfast.core.base.canonical import canonical
from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.key.model import Role
from holdfast.core.provider.messages import Heartbeat, ProviderSlashed, ProviderStatusChanged, Register
from holdfast.core.provider.model import Provider, ProviderStatus, provider_id
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.outcome import Accepted
from holdfast.engine.queries import providers

ID = provider_id(public(1))
OAK = Principal("0" * 16, Role.PROVIDER, AccountId("oak"))
ONE = {"provider_id": ID.hex()}
KINDS: dict[str, Any] = {"AI": {"models": ["echo"]}, "QUANTUM": {"gates": ["h"], "depth_max": 3, "width_max": 2}}


async def add(node: RpcNode, number: int, account: str = "oak", region: str = "eu", kind: str = "AI") -> None:
    told = (account, AccountId(account), canonical({kind: KINDS[kind]}), region, 3, 4, node.world.clock.wall + YEAR_MS)
    assert isinstance(await node.access.submit(Register(public(number), *told)), Accepted)


@pytest.fixture
async def node() -> AsyncIterator[RpcNode]:
    """A node with one provider that is active."""
    async with rpc_node() as node:
        await add(node, 1)
        await node.mint("oak", 20_000, 50)
        await node.ask(OPERATOR, "provider.stake", **ONE, amount=10_000, request=some_id(1).hex())
        assert isinstance(await node.access.submit(Heartbeat(ID, 4)), Accepted)
        yield node


def one(node: RpcNode) -> Provider:
    return node.engine.undurable_state.providers[ID]


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.rule("RPC-001")
async def test_providers_are_listed_by_id_in_pages_that_follow_each_other(node: RpcNode) -> None:
    for number in range(2, 8):
        await add(node, number, f"p{number}")
    ids, cursor, pages = [], "", 0
    while True:
        page = await node.ask(ALICE, "aicf.listProviders", limit=3, cursor=cursor)
        ids += [each["provider"]["id"] for each in page["providers"]]
        pages += 1
        assert page["as_of"] == node.engine.undurable_state.last_event
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert (ids, pages) == (sorted(provider_id(public(number)).hex() for number in range(1, 8)), 3)
    for limit in (0, 1_001):
        assert (await node.refusal(ALICE, "aicf.listProviders", limit=limit))[0] == "InvalidParams"


@pytest.mark.rule("RPC-001", "SEC-001")
async def test_a_page_of_talkative_providers_is_shorter_and_none_of_them_is_left_out(
    node: RpcNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "PROVIDER_PAGE_BYTES_MAX", 3 * len(one(node).capabilities))
    for number in range(2, 9):
        await add(node, number, f"p{number}")
    sizes, ids, cursor = [], [], ""
    while cursor is not None:
        page = await node.ask(ALICE, "aicf.listProviders", cursor=cursor)
        sizes.append(len(page["providers"]))
        ids += [each["provider"]["id"] for each in page["providers"]]
        cursor = page["next_cursor"]
    assert (sizes, ids) == ([3, 3, 2], sorted(id_.hex() for id_ in node.engine.undurable_state.providers))
    monkeypatch.setattr(providers, "PROVIDER_PAGE_BYTES_MAX", 0)
    assert len((await node.ask(ALICE, "aicf.listProviders"))["providers"]) == 1, "it goes on all the same"


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({"status": "ACTIVE"}, {1}),
        ({"region": "us"}, {2, 3}),
        ({"kind": "QUANTUM"}, {3}),
        ({"status": "JAILED"}, set()),
    ],
)
async def test_providers_are_filtered_by_status_region_and_kind(
    node: RpcNode, asked: dict[str, str], numbers: set[int]
) -> None:
    await add(node, 2, "p2", "us")
    await add(node, 3, "p3", "us", "QUANTUM")
    found = await node.ask(ALICE, "aicf.listProviders", **asked)
    assert {each["provider"]["id"] for each in found["providers"]} == {provider_id(public(n)).hex() for n in numbers}


async def test_one_that_gets_no_work_says_why(node: RpcNode) -> None:
    assert (await node.ask(ALICE, "aicf.getProvider", **ONE))["why_not"] is None
    await node.ask(OPERATOR, "provider.deny", **ONE)
    assert (await node.ask(ALICE, "aicf.getProvider", **ONE))["why_not"] == "denied"
    assert (await node.refusal(ALICE, "aicf.getProvider", provider_id="00" * 32))[0] == "NotFound"


# ------------------------------------------------------------------------------------------------ moving

STATUS_CHANGES = [
    ("provider.jail", {"blocks": 3}, "JAILED"),
    ("provider.suspend", {}, "SUSPENDED"),
    ("provider.retire", {}, "RETIRED"),
]


@pytest.mark.rule("PRV-001", "SEC-001")
@pytest.mark.parametrize(("method", "told", "status"), STATUS_CHANGES)
async def test_an_operator_changes_a_providers_status_under_its_own_name(
    node: RpcNode, method: str, told: dict[str, Any], status: str
) -> None:
    answer = await node.ask(OPERATOR, method, **ONE, reason="as the test says", **told)
    assert not answer["is_repeat"]
    assert one(node).status == status
    moved = next(each for each in node.last_batch() if isinstance(each, ProviderStatusChanged))
    assert (moved.actor, moved.reason, moved.before) == (OPERATOR.name, "as the test says", ProviderStatus.ACTIVE)
    assert node.privileged_acts()[-1] == (OPERATOR.name, method)
    again = await node.refusal(OPERATOR, method, **ONE, **told)
    assert again[:2] == ("Refused", "PRV-001")


@pytest.mark.rule("PRV-001")
async def test_there_is_a_way_back_from_jail_and_suspension(node: RpcNode) -> None:
    await node.ask(OPERATOR, "provider.suspend", **ONE)
    await node.ask(OPERATOR, "provider.recover", **ONE)
    assert one(node).status is ProviderStatus.ACTIVE
    await node.ask(OPERATOR, "provider.jail", **ONE)
    await node.ask(OPERATOR, "provider.unjail", **ONE)
    assert one(node).status is ProviderStatus.REGISTERED


@pytest.mark.rule("SEC-001")
async def test_who_holds_the_key_of_its_account_changes_its_own_provider_and_no_other(node: RpcNode) -> None:
    await add(node, 2, "ash")
    other = {"provider_id": provider_id(public(2)).hex()}
    for method, told in (
        ("provider.drain", {}),
        ("provider.undrain", {}),
        ("provider.stake", {"amount": 5, "request": some_id(7).hex()}),
        ("provider.unstake", {"amount": 5, "request": some_id(8).hex()}),
        ("provider.retire", {}),
    ):
        assert (await node.refusal(OAK, method, **other, **told))[:2] == ("Forbidden", "SEC-001")
        assert (await node.refusal(PROVIDER, method, **other, **told))[:2] == ("Forbidden", "SEC-001")
        assert (await node.refusal(AUDITOR, method, **ONE, **told))[0] == "Forbidden"
        await node.ask(OAK, method, **ONE, **told)
    assert (await node.refusal(OAK, "provider.unjail", **ONE))[0] == "Forbidden"


@pytest.mark.rule("PRV-001")
async def test_unstaking_locks_the_stake_and_asked_again_it_is_the_same(node: RpcNode) -> None:
    wish = {"amount": 10_000, "request": some_id(9).hex()}
    first = await node.ask(OPERATOR, "provider.unstake", **ONE, **wish)
    again = await node.ask(OPERATOR, "provider.unstake", **ONE, **wish)
    assert (again["is_repeat"], again["event"]) == (True, first["event"])
    assert (one(node).stake, one(node).unstaking, one(node).status) == (0, 10_000, ProviderStatus.REGISTERED)
    account = await node.ask(OPERATOR, "account.getAccount", owner="oak")
    assert (account["available"], account["held"]) == (10_000, 10_000)


@pytest.mark.rule("MAT-002")
async def test_the_operator_s_lists_are_kept_and_shown(node: RpcNode) -> None:
    await node.ask(OPERATOR, "provider.allow", **ONE)
    await node.ask(OPERATOR, "provider.deny", region="eu", reason="rules")
    found = await node.ask(AUDITOR, "provider.listRules")
    assert found == {"allowed": [f"provider:{ID.hex()}"], "denied": ["region:eu"]}
    await node.ask(OPERATOR, "provider.unsetRule", region="eu")
    await node.ask(OPERATOR, "provider.unsetRule", **ONE)
    assert await node.ask(AUDITOR, "provider.listRules") == {"allowed": [], "denied": []}
    for wrong in ({}, {**ONE, "region": "eu"}):
        assert (await node.refusal(OPERATOR, "provider.deny", **wrong))[:2] == ("InvalidParams", "MAT-002")


@pytest.mark.rule("MAT-006")
async def test_why_a_job_does_not_go_to_a_provider_can_be_asked(node: RpcNode) -> None:
    await node.mint("alice", 1_000, 60)
    payload = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}
    task = (await node.ask(ALICE, "cap.enqueue", payload=payload, max_fee=10))["task_id"]
    assert "model" in (await node.ask(ALICE, "provider.explain", **ONE, task_id=task))["why_not"]
    await node.ask(OPERATOR, "provider.jail", **ONE)
    assert (await node.ask(ALICE, "provider.explain", **ONE, task_id=task))["why_not"] == "status JAILED"
    assert (await node.refusal(ALICE, "provider.explain", provider_id="00" * 32, task_id=task))[0] == "NotFound"
    assert (await node.refusal(ALICE, "provider.explain", **ONE, task_id="00" * 32))[0] == "NotFound"


@pytest.mark.rule("PRV-004")
def test_a_slash_is_published_under_the_name_and_with_the_fields_that_others_know() -> None:
    slashed = ProviderSlashed(ID, "EQUIVOCATION", Amount(25), "severe", 7, 1_000, 3)
    told = public_events.event_json(StoredEvent(EventNo(9), 1_000, slashed), public_events.public_name(ProviderSlashed))
    assert told["type"] == "providerSlashed"
    assert {name: told["event"][name] for name in ("providerId", "reason", "penalty")} == {
        "providerId": ID.hex(),
        "reason": "EQUIVOCATION",
        "penalty": 25,
    }
