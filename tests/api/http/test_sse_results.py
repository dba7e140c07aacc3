"""A caller learns from events what blocks do to its results, from any cursor, and others do not (EVT-002)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.api.http.http_node import WITHIN_S, HttpNode, http_node
from tests.api.http.test_sse import SseStream, stream
from tests.api.http.test_sse_own_leases import OAK, do, leased
from tests.core.blocks import SEAL, final_after
from tests.simulation.world import World

from holdfast.core.base.values import AccountId, Height
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.key.model import Role
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("EVT-002")
TYPES = "readable,rolledBack,reincluded,finalized,blockSealed,blocksFinalized"
LIFE = [
    ("readable", 1),
    ("blockSealed", 1),
    ("rolledBack", 1),
    ("reincluded", 1),
    ("readable", 1),
    ("blockSealed", 1),
    ("blockSealed", 2),
    ("blockSealed", 3),
    ("finalized", 1),
    ("blocksFinalized", 1),
]


async def resolved(house: HttpNode, token: str) -> str:
    """A job of alice with an accepted proof in the open block."""
    await house.mint(*range(10))
    asked = {"payload": {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}, "max_fee": 5, "nonce": 1}
    task: str = (await house.call("cap.enqueue", token, **asked)).json()["result"]["task_id"]
    lease = await leased(house)
    body = body_of(bytes.fromhex(task), lease.id, OAK, result_digest(b"out"), 3, {"ms": 5})
    await do(house, SubmitCompletion(lease.id, OAK, Envelope(1, "attested", body, b"s" * 64)))
    await do(house, RecordVerdict(lease.id, True, "as the test says"))
    return task


async def live_through(house: HttpNode) -> None:
    await do(house, SEAL)
    await do(house, RollBackBlocks(Height(0)))
    for _ in range(3):
        await do(house, SEAL)


async def data_blocks(events: SseStream, count: int) -> list[dict[str, str]]:
    """The next blocks that are no comments; comments do not prolong the wait."""
    blocks: list[dict[str, str]] = []
    async with asyncio.timeout(WITHIN_S):
        while len(blocks) < count:
            if "data" in (block := await events.block()):
                blocks.append(block)
    return blocks


async def heard(house: HttpNode, token: str, after: str, count: int) -> list[tuple[str, str, Any]]:
    """The cursor, the name and the fields of the next events."""
    async with stream(house, token, f"?after={after}&types={TYPES}") as events:
        blocks = await data_blocks(events, count)
    return [(each["id"], each["event"], json.loads(each["data"])["event"]) for each in blocks]


async def test_a_caller_hears_what_blocks_do_to_its_results_from_any_cursor() -> None:
    async with http_node(World(final_after(2))) as house:
        alice, bob = await house.token(Role.REQUESTER), await house.token(Role.REQUESTER, account=AccountId("bob"))
        task = await resolved(house, alice)
        await live_through(house)
        told = await heard(house, alice, "0", len(LIFE))
        assert [(name, fields["height"]) for _, name, fields in told] == LIFE
        assert {fields["task_id"] for _, name, fields in told if "task_id" in fields} == {task}
        for at, (cursor, *_) in enumerate(told[:-1]):
            assert await heard(house, alice, cursor, len(LIFE) - at - 1) == told[at + 1 :], cursor
        blocks = [each for each in told if each[1].startswith("block")]
        assert await heard(house, bob, "0", len(blocks)) == blocks


async def test_a_caller_hears_it_as_it_happens() -> None:
    async with http_node(World(final_after(2))) as house:
        alice = await house.token(Role.REQUESTER)
        await resolved(house, alice)
        async with stream(house, alice, f"?types={TYPES}") as events:
            await live_through(house)
            blocks = await data_blocks(events, len(LIFE))
        assert [(each["event"], json.loads(each["data"])["event"]["height"]) for each in blocks] == LIFE
