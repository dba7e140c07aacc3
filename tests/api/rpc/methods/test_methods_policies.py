"""The policy over RPC: shown, adopted at once, refused as a whole where a part of it is wrong, and remembered."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.rpc.rpc_callers import AUDITOR, OPERATOR, rpc_node

from holdfast.api.node_access import LOCAL
from holdfast.core.policy_change.messages import AdoptPolicy

pytestmark = pytest.mark.rule("PRI-003")


async def test_a_policy_that_is_adopted_counts_at_once_everywhere_and_is_remembered() -> None:
    async with rpc_node() as house:
        await house.engine.submit(AdoptPolicy(house.engine.policy, "init"))
        wanted = {"chain": {"finality_depth": 3}, "engine": {"batch_events_max": 77}}
        await house.ask(OPERATOR, "policy.apply", policy=wanted)
        assert house.engine.policy.chain.finality_depth == 3
        assert house.engine.room == 77
        shown = await house.ask(AUDITOR, "policy.getPolicy")
        assert (shown["policy"]["chain"]["finality_depth"], shown["policy"]["network"]) == (3, "development")
        assert (await house.ask(OPERATOR, "policy.apply", policy=wanted))["is_repeat"]
        await house.ask(LOCAL, "policy.apply", policy={})
        pages = [await house.ask(AUDITOR, "policy.listHistory", limit=1)]
        while (cursor := pages[-1]["next_cursor"]) is not None:
            pages.append(await house.ask(AUDITOR, "policy.listHistory", limit=1, cursor=cursor))
        told = [(each["by"], each["changes"]) for page in pages for each in page["adoptions"]]
        changes = {"chain.finality_depth": [12, 3], "engine.batch_events_max": [8_192, 77]}
        back = {path: value[::-1] for path, value in changes.items()}
        assert told == [("local", back), (OPERATOR.name, changes), ("init", {})]
        assert house.privileged_acts() == [(OPERATOR.name, "policy.apply"), ("local", "policy.apply")]


@pytest.mark.rule("SEC-001", "ESC-003")
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"chain": {"block_msec": 5}}, "policy.chain.block_msec: no such setting"),
        ({"chain": 5}, "policy.chain: no such setting"),
        ({"chain": {"block_ms": 0}}, "policy.chain.block_ms: 0 is not within"),
        ({"chain": {"block_ms": 2.5}}, "policy: Expected `int`"),
        ({"chain": {"block_ms": True}}, "policy: Expected `int`"),
        ({"chain": {"block_ms": 70_000}, "lease": {"renewals_max": -1}}, "policy.lease.renewals_max: -1 is not"),
        ({"network": "production"}, "of a development network"),
        ({"chain_id": 7}, "chain 1337"),
    ],
)
async def test_a_policy_with_a_fault_is_refused_as_a_whole(policy: dict[str, Any], message: str) -> None:
    async with rpc_node() as house:
        name, _, said = await house.refusal(OPERATOR, "policy.apply", policy=policy)
        assert (name, message in said) == ("InvalidParams", True), said
