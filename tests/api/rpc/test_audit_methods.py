"""The log of privileged actions over JSON-RPC: from either end, in bounded pieces, whole and without secrets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, OPERATOR, RpcNode, rpc_node
from tests.core.commands import some_id

from holdfast.api.rpc import audit_methods
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Amount, EventNo
from holdfast.core.escrow.messages import Mint

pytestmark = pytest.mark.rule("SEC-001")
HASH = "5a" * 32


@pytest.fixture
async def node() -> AsyncIterator[RpcNode]:
    """Four keys were created, with other events between them."""
    async with rpc_node() as node:
        for number in range(4):
            await node.engine.submit(Mint(some_id(number), AccountId("alice"), Amount(1)))
            id_ = f"{number:016x}"
            await node.ask(OPERATOR, "key.createKey", id=id_, secret=HASH, role="requester", account="alice")
        yield node


async def listed(node: RpcNode, **params: object) -> tuple[list[dict[str, Any]], int]:
    """The actions over all pages, and how many pages they were."""
    rows, after, pages = list[dict[str, Any]](), 0, 0
    while after is not None:
        page = await node.ask(AUDITOR, "audit.listActions", **params, after=after)
        assert len(page["rows"]) <= int(str(params.get("limit", 100)))
        rows, after, pages = rows + page["rows"], page["next_after"], pages + 1
    return rows, pages


@pytest.mark.parametrize("per_call", [1, 2, 3, 4_096])
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_every_action_is_listed_once_from_either_end(
    node: RpcNode, monkeypatch: pytest.MonkeyPatch, per_call: int, limit: int
) -> None:
    monkeypatch.setattr(audit_methods, "EVENTS_PER_CALL", per_call)
    found, pages = await listed(node, limit=limit)
    created = [action for action in found if action["method"] == "key.createKey"]
    assert [action["events"][0]["event"]["id"] for action in created] == [f"{number:016x}" for number in range(4)]
    assert {len(action["events"]) for action in created} == {1}, "an action has its events, wherever a piece ends"
    assert all(action["actor"] == OPERATOR.name for action in created)
    assert "secret" not in json.dumps(found)
    assert (await listed(node, limit=limit, newest_first=True))[0] == found[::-1]
    assert (pages > 1) is (per_call < 4 or limit < len(found))


async def test_one_actors_actions_and_those_after_an_event(node: RpcNode) -> None:
    assert (await listed(node, actor="nobody"))[0] == []
    found = (await listed(node, actor=OPERATOR.name))[0]
    assert len(found) == 4
    later = await node.ask(AUDITOR, "audit.listActions", actor=OPERATOR.name, after=found[1]["number"])
    assert later["rows"] == found[2:]
    assert (await node.refusal(AUDITOR, "audit.listActions", after=10**6))[1] == "ENG-006"
    assert (await node.refusal(AUDITOR, "audit.listActions", limit=0))[0] == "InvalidParams"
    assert (await node.refusal(ALICE, "audit.listActions"))[0] == "Forbidden"


@pytest.mark.rule("ENG-006")
async def test_the_newest_end_where_older_events_were_deleted(node: RpcNode, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (await listed(node, newest_first=True))[0]
    kept, stream = found[1]["number"], node.access.source.event_stream
    follow = stream.follow

    def follow_what_is_left(after: EventNo) -> Any:
        if after < kept - 1:
            raise Unavailable("ENG-006", "deleted", "follow later")
        return follow(after)

    async def deleted_until() -> EventNo:
        return EventNo(kept - 1)

    monkeypatch.setattr(stream, "follow", follow_what_is_left)
    monkeypatch.setattr(stream, "deleted_until", deleted_until)
    assert (await listed(node, newest_first=True))[0] == found[:2]
    assert (await node.refusal(AUDITOR, "audit.listActions"))[1] == "ENG-006"
