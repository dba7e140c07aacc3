"""Results are listed by resolved height and by caller, in pages, also when their records are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, BOB, RpcNode
from tests.core.commands import some_id
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.api.node_access import ANONYMOUS, NodeAccess
from holdfast.core.base.values import AccountId, Amount, Height, TaskId
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.escrow.messages import Mint
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("RES-009", "JOB-010")
OF_BOB = AccountId("bob")


class ListedNode:
    """Alice's results in blocks 2, 2, 4 and 6, Bob's in 3 and 5; block 7 is empty."""

    def __init__(self) -> None:
        self.home = RetentionNode(policy())
        self.tasks: list[TaskId] = []

    async def open(self) -> None:
        await self.home.open_with_provider()
        await self.home.engine.submit(Mint(some_id(9), OF_BOB, Amount(10_000)))
        self.rpc = RpcNode(self.home.world, NodeAccess(self.home.engine, self.home.engine.submit))
        for output, seals in ((b"a1", 0), (b"a2", 1)):
            self.tasks.append(await self.home.resolve(output, seals=seals))
        for output in (b"b3", b"a4", b"b5", b"a6"):
            caller = {"caller": OF_BOB} if output.startswith(b"b") else {}
            self.tasks.append(await self.home.resolve(output, seals=1, **caller))
        await self.home.seal()
        await self.home.engine.wait_tables()

    async def list(self, principal: Any = ANONYMOUS, /, **params: object) -> list[int]:
        """Which of the tasks are listed, over all pages."""
        found: list[int] = []
        cursor: object = 0
        while cursor is not None:
            page = await self.rpc.ask(principal, "cap.listResults", **params, cursor=cursor)
            assert len(page["rows"]) <= int(str(params.get("limit", 100)))
            found += [self.tasks.index(TaskId(bytes.fromhex(row["task_id"]))) for row in page["rows"]]
            cursor = page["next_after"]
        return found


@pytest.fixture
async def node() -> AsyncIterator[ListedNode]:
    made = ListedNode()
    await made.open()
    yield made
    await made.home.kill()


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
async def test_all_results_come_in_the_order_of_their_blocks_page_by_page(node: ListedNode, limit: int) -> None:
    assert await node.list(limit=limit) == [0, 1, 2, 3, 4, 5]
    assert await node.list(ALICE, caller="alice", limit=limit) == [0, 1, 3, 5]
    assert await node.list(limit=limit, newest_first=True) == [5, 4, 3, 2, 1, 0]
    assert await node.list(ALICE, caller="alice", limit=limit, newest_first=True) == [5, 3, 1, 0]


async def test_a_page_of_the_newest_goes_on_where_it_ended_although_newer_results_came(node: ListedNode) -> None:
    for caller in ({}, {"caller": "alice"}):
        first = await node.rpc.ask(ALICE, "cap.listResults", **caller, newest_first=True, limit=2)
        node.tasks.append(await node.home.resolve(b"new" + repr(caller).encode(), seals=1))
        await node.home.engine.wait_tables()
        rest = await node.rpc.ask(ALICE, "cap.listResults", **caller, newest_first=True, cursor=first["next_after"])
        seen = [row["task_id"] for row in first["rows"] + rest["rows"]]
        listed = await node.list(ALICE, **caller, newest_first=True)
        assert [node.tasks.index(TaskId(bytes.fromhex(each))) for each in seen] == listed[1:]


@pytest.mark.parametrize(
    ("first", "last", "everybody", "alice"),
    [
        (1, None, [0, 1, 2, 3, 4, 5], [0, 1, 3, 5]),
        (2, 2, [0, 1], [0, 1]),
        (3, None, [2, 3, 4, 5], [3, 5]),
        (3, 4, [2, 3], [3]),
        (5, 6, [4, 5], [5]),
        (6, None, [5], [5]),
        (7, None, [], []),
        (8, None, [], []),
        (1, 1, [], []),
        (1, 0, [], []),
        (4, 3, [], []),
        (1, 99, [0, 1, 2, 3, 4, 5], [0, 1, 3, 5]),
    ],
)
async def test_a_list_begins_and_ends_at_a_height(
    node: ListedNode, first: int, last: int | None, everybody: list[int], alice: list[int]
) -> None:
    heights = {"from_height": first} | ({"until_height": last} if last is not None else {})
    for limit in (1, 100):
        assert await node.list(limit=limit, **heights) == everybody
        assert await node.list(AUDITOR, caller="alice", limit=limit, **heights) == alice
        newest: dict[str, object] = {"limit": limit, "newest_first": True, **heights}
        assert await node.list(**newest) == everybody[::-1]
        assert await node.list(AUDITOR, caller="alice", **newest) == alice[::-1]


async def test_a_row_of_everybodys_list_has_the_fields_of_its_leaf_and_no_more(node: ListedNode) -> None:
    (row,) = (await node.rpc.ask(ANONYMOUS, "cap.listResults", from_height=3, until_height=3))["rows"]
    assert row.keys() == {
        *("leaf_index", "task_id", "height_resolved", "proof_nullifier"),
        *("result_digest", "result_size", "da_commitment"),
    }
    assert (row["height_resolved"], row["result_digest"]) == (3, result_digest(b"b3").hex())


@pytest.mark.rule("SEC-002")
async def test_only_the_caller_operators_and_auditors_list_a_callers_results(node: ListedNode) -> None:
    assert await node.list(BOB, caller="bob") == [2, 4]
    for principal in (ANONYMOUS, BOB):
        name, rule = (await node.rpc.refusal(principal, "cap.listResults", caller="alice"))[:2]
        assert (name, rule) == ("Forbidden", "JOB-010")
    name, _ = (await node.rpc.refusal(BOB, "cap.listResults", limit=1_001))[:2]
    assert name == "InvalidParams"


async def test_results_of_a_block_that_was_rolled_back_are_not_listed_until_they_are_in_one_again(
    node: ListedNode,
) -> None:
    await node.home.engine.submit(RollBackBlocks(Height(4)))
    assert await node.list() == [0, 1, 2, 3]
    await node.home.engine.wait_tables()
    assert await node.list(ALICE, caller="alice") == [0, 1, 3]
    await node.home.seal()
    await node.home.engine.wait_tables()
    assert await node.list(from_height=5) == [4, 5]
    assert await node.list(ALICE, caller="alice", from_height=5) == [5]


async def test_a_result_whose_record_was_vacuumed_is_still_in_the_log(node: ListedNode) -> None:
    await node.home.archive_all()
    await node.home.pass_days(4)
    await node.home.collector.resume_deletes()
    await node.home.collector.run_passes()
    await node.home.engine.wait_tables()
    assert node.home.world.tables.rows["result"] == {}
    assert await node.list() == [0, 1, 2, 3, 4, 5]
    assert await node.list(from_height=4, until_height=5) == [3, 4]
    assert await node.list(ALICE, caller="alice", from_height=4) == []
