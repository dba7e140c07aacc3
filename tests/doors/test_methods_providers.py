"""Providers over JSON-RPC: looked at in pages, moved by operators under their names, and by whoever's they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.core.books import some_id
from tests.core.ways import YEAR_MS, public
from tests.doors.visitors import ALICE, AUDITOR, OPERATOR, PROVIDER, Node, node

from holdfast.core.canon import canonical
from holdfast.core.key import Role
from holdfast.core.provider.acts import Beat, ProviderMoved, ProviderSlashed, Register
from holdfast.core.provider.record import Provider, ProviderStatus, provider_id
from holdfast.core.values import AccountId, Amount, EventNo
from holdfast.doors.desk import Visitor
from holdfast.doors.http import topics
from holdfast.doors.methods import providers
from holdfast.engine.outcome import Accepted
from holdfast.engine.tail import Recorded

ID = provider_id(public(1))
OAK = Visitor("0" * 16, Role.PROVIDER, AccountId("oak"))
ONE = {"provider_id": ID.hex()}
KINDS: dict[str, Any] = {"AI": {"models": ["echo"]}, "QUANTUM": {"gates": ["h"], "depth_max": 3, "width_max": 2}}


async def add(house: Node, number: int, account: str = "oak", region: str = "eu", kind: str = "AI") -> None:
    told = (account, AccountId(account), canonical({kind: KINDS[kind]}), region, 3, 4, house.world.clock.wall + YEAR_MS)
    assert isinstance(await house.desk.submit(Register(public(number), *told)), Accepted)


@pytest.fixture
async def house() -> AsyncIterator[Node]:
    """A node with one provider that is active."""
    async with node() as house:
        await add(house, 1)
        await house.mint("oak", 20_000, 50)
        await house.ask(OPERATOR, "provider.stake", **ONE, amount=10_000, request=some_id(1).hex())
        assert isinstance(await house.desk.submit(Beat(ID, 4)), Accepted)
        yield house


def one(house: Node) -> Provider:
    return house.engine.state.providers[ID]


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.rule("RPC-001")
async def test_providers_are_listed_by_id_in_pages_that_follow_each_other(house: Node) -> None:
    for number in range(2, 8):
        await add(house, number, f"p{number}")
    ids, cursor, pages = [], "", 0
    while True:
        page = await house.ask(ALICE, "aicf.listProviders", limit=3, cursor=cursor)
        ids += [each["provider"]["id"] for each in page["providers"]]
        pages += 1
        assert page["as_of"] == house.engine.state.last_event
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert (ids, pages) == (sorted(provider_id(public(number)).hex() for number in range(1, 8)), 3)
    for limit in (0, 1_001):
        assert (await house.no(ALICE, "aicf.listProviders", limit=limit))[0] == "InvalidParams"


@pytest.mark.rule("RPC-001", "SEC-001")
async def test_a_page_of_talkative_providers_is_shorter_and_none_of_them_is_left_out(
    house: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(providers, "PAGE_BYTES_MAX", 3 * len(one(house).capabilities))
    for number in range(2, 9):
        await add(house, number, f"p{number}")
    sizes, ids, cursor = [], [], ""
    while cursor is not None:
        page = await house.ask(ALICE, "aicf.listProviders", cursor=cursor)
        sizes.append(len(page["providers"]))
        ids += [each["provider"]["id"] for each in page["providers"]]
        cursor = page["next_cursor"]
    assert (sizes, ids) == ([3, 3, 2], sorted(id_.hex() for id_ in house.engine.state.providers))
    monkeypatch.setattr(providers, "PAGE_BYTES_MAX", 0)
    assert len((await house.ask(ALICE, "aicf.listProviders"))["providers"]) == 1, "it goes on all the same"


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
    house: Node, asked: dict[str, str], numbers: set[int]
) -> None:
    await add(house, 2, "p2", "us")
    await add(house, 3, "p3", "us", "QUANTUM")
    found = await house.ask(ALICE, "aicf.listProviders", **asked)
    assert {each["provider"]["id"] for each in found["providers"]} == {provider_id(public(n)).hex() for n in numbers}


async def test_one_that_gets_no_work_says_why(house: Node) -> None:
    assert (await house.ask(ALICE, "aicf.getProvider", **ONE))["why_not"] is None
    await house.ask(OPERATOR, "provider.deny", **ONE)
    assert (await house.ask(ALICE, "aicf.getProvider", **ONE))["why_not"] == "denied"
    assert (await house.no(ALICE, "aicf.getProvider", provider_id="00" * 32))[0] == "NotFound"


# ------------------------------------------------------------------------------------------------ moving

MOVES = [
    ("provider.jail", {"blocks": 3}, "JAILED"),
    ("provider.suspend", {}, "SUSPENDED"),
    ("provider.retire", {}, "RETIRED"),
]


@pytest.mark.rule("PRV-001", "SEC-001")
@pytest.mark.parametrize(("method", "told", "status"), MOVES)
async def test_an_operator_moves_a_provider_under_its_own_name(
    house: Node, method: str, told: dict[str, Any], status: str
) -> None:
    answer = await house.ask(OPERATOR, method, **ONE, reason="as the test says", **told)
    assert not answer["is_repeat"]
    assert one(house).status == status
    moved = next(each for each in house.last_batch() if isinstance(each, ProviderMoved))
    assert (moved.actor, moved.reason, moved.before) == (OPERATOR.name, "as the test says", ProviderStatus.ACTIVE)
    assert house.acts()[-1] == (OPERATOR.name, method)
    again = await house.no(OPERATOR, method, **ONE, **told)
    assert again[:2] == ("Refused", "PRV-001")


@pytest.mark.rule("PRV-001")
async def test_there_is_a_way_back_from_jail_and_suspension(house: Node) -> None:
    await house.ask(OPERATOR, "provider.suspend", **ONE)
    await house.ask(OPERATOR, "provider.recover", **ONE)
    assert one(house).status is ProviderStatus.ACTIVE
    await house.ask(OPERATOR, "provider.jail", **ONE)
    await house.ask(OPERATOR, "provider.unjail", **ONE)
    assert one(house).status is ProviderStatus.REGISTERED


@pytest.mark.rule("SEC-001")
async def test_who_holds_the_key_of_its_account_moves_its_own_provider_and_no_other(house: Node) -> None:
    await add(house, 2, "ash")
    other = {"provider_id": provider_id(public(2)).hex()}
    for method, told in (
        ("provider.drain", {}),
        ("provider.undrain", {}),
        ("provider.stake", {"amount": 5, "request": some_id(7).hex()}),
        ("provider.unstake", {"amount": 5, "request": some_id(8).hex()}),
        ("provider.retire", {}),
    ):
        assert (await house.no(OAK, method, **other, **told))[:2] == ("Forbidden", "SEC-001")
        assert (await house.no(PROVIDER, method, **other, **told))[:2] == ("Forbidden", "SEC-001")
        assert (await house.no(AUDITOR, method, **ONE, **told))[0] == "Forbidden"
        await house.ask(OAK, method, **ONE, **told)
    assert (await house.no(OAK, "provider.unjail", **ONE))[0] == "Forbidden"


@pytest.mark.rule("PRV-001")
async def test_stake_that_is_taken_back_is_locked_and_asked_again_it_is_the_same(house: Node) -> None:
    wish = {"amount": 10_000, "request": some_id(9).hex()}
    first = await house.ask(OPERATOR, "provider.unstake", **ONE, **wish)
    again = await house.ask(OPERATOR, "provider.unstake", **ONE, **wish)
    assert (again["is_repeat"], again["event"]) == (True, first["event"])
    assert (one(house).stake, one(house).unstaking, one(house).status) == (0, 10_000, ProviderStatus.REGISTERED)
    account = await house.ask(OPERATOR, "account.show", owner="oak")
    assert (account["available"], account["held"]) == (10_000, 10_000)


@pytest.mark.rule("MAT-002")
async def test_the_operator_s_lists_are_kept_and_shown(house: Node) -> None:
    await house.ask(OPERATOR, "provider.allow", **ONE)
    await house.ask(OPERATOR, "provider.deny", region="eu", reason="rules")
    found = await house.ask(AUDITOR, "provider.lists")
    assert found == {"allowed": [f"provider:{ID.hex()}"], "denied": ["region:eu"]}
    await house.ask(OPERATOR, "provider.unlist", region="eu")
    await house.ask(OPERATOR, "provider.unlist", **ONE)
    assert await house.ask(AUDITOR, "provider.lists") == {"allowed": [], "denied": []}
    for wrong in ({}, {**ONE, "region": "eu"}):
        assert (await house.no(OPERATOR, "provider.deny", **wrong))[:2] == ("InvalidParams", "MAT-002")


@pytest.mark.rule("MAT-006")
async def test_why_a_job_does_not_go_to_a_provider_can_be_asked(house: Node) -> None:
    await house.mint("alice", 1_000, 60)
    payload = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}
    task = (await house.ask(ALICE, "cap.enqueue", payload=payload, max_fee=10))["task_id"]
    assert "model" in (await house.ask(ALICE, "provider.whyNot", **ONE, task_id=task))["why_not"]
    await house.ask(OPERATOR, "provider.jail", **ONE)
    assert (await house.ask(ALICE, "provider.whyNot", **ONE, task_id=task))["why_not"] == "status JAILED"
    assert (await house.no(ALICE, "provider.whyNot", provider_id="00" * 32, task_id=task))[0] == "NotFound"
    assert (await house.no(ALICE, "provider.whyNot", **ONE, task_id="00" * 32))[0] == "NotFound"


@pytest.mark.rule("PRV-004")
def test_a_slash_is_told_under_the_name_and_with_the_words_that_others_know() -> None:
    slashed = ProviderSlashed(ID, "EQUIVOCATION", Amount(25), "severe", 7, 1_000, 3)
    told = topics.shown(Recorded(EventNo(9), 1_000, slashed), topics.topic_of(ProviderSlashed))
    assert told["type"] == "providerSlashed"
    assert {name: told["event"][name] for name in ("providerId", "reason", "penalty")} == {
        "providerId": ID.hex(),
        "reason": "EQUIVOCATION",
        "penalty": 25,
    }
