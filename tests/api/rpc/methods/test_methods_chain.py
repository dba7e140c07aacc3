"""The chain at the doors: heads, blocks, proofs that hold after a reorg, and the way back for operators."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.rpc.rpc_callers import ALICE, CALLERS, OPERATOR, RpcNode, job, rpc_node
from tests.core.blocks import SEAL, final_after, sign

from holdfast.core.base.canonical import decode
from holdfast.core.base.merkle import verify_inclusion
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import EventNo, Height
from holdfast.core.chain.header import Header, header_hash
from holdfast.core.chain.messages import BlockRolledBack, TransactionsReincluded
from holdfast.core.policy import Policy
from holdfast.workers.rollback_runner import RollbackRunner

NOBODY = CALLERS["nobody"]
X = bytes.fromhex


async def seal(house: RpcNode, times: int = 1) -> None:
    for _ in range(times):
        await house.engine.submit(SEAL)


async def enqueue(house: RpcNode, nonce: int) -> str:
    return str((await house.ask(ALICE, "cap.enqueue", **job(nonce=nonce)))["task_id"])


def header_of(block: dict[str, Any], chain_id: int) -> Header:
    """A header from what a light client is shown."""
    fields = Header.__struct_fields__[1:]
    shown = {name: X(block[name]) if isinstance(block[name], str) else block[name] for name in fields}
    return Header(chain_id, **shown)  # type: ignore[arg-type]


async def proved(house: RpcNode, task_id: str) -> int:
    """The height of the block that a light client is convinced of, from the answer alone."""
    found = await house.ask(NOBODY, "chain.proveAdmission", task_id=task_id)
    block, proof = found["block"], found["proof"]
    header = header_of(block, found["chain_id"])
    assert header_hash(header) == X(block["hash"])
    assert sign(X(block["hash"])) == X(block["signature"])
    leaf, path = X(proof["leaf"]), [X(step) for step in proof["path"]]
    assert verify_inclusion(header.tx_root, leaf, proof["index"], header.tx_count, path)
    said = decode(leaf)
    assert isinstance(said, list)
    assert (said[0], said[2]) == ("admission", X(task_id))
    return int(header.height)


@pytest.mark.rule("CHN-002")
async def test_the_head_says_what_is_sealed_final_and_open() -> None:
    async with rpc_node(final_after(2)) as house:
        await house.mint()
        await seal(house, 3)
        await enqueue(house, 1)
        head = await house.ask(NOBODY, "chain.getHead")
        assert (head["block"]["height"], head["finalized"]) == (3, 1)
        assert (head["open_height"], head["open_transactions"]) == (4, 1)


@pytest.mark.rule("CHN-001")
async def test_a_block_is_shown_with_its_transactions_and_whether_it_is_final() -> None:
    async with rpc_node(final_after(1)) as house:
        await house.mint()
        await enqueue(house, 1)
        number = house.engine.undurable_state.last_event
        await seal(house)
        shown = await house.ask(NOBODY, "chain.getBlock", height=1)
        assert (shown["transactions"], shown["is_final"]) == ([number], False)
        await seal(house)
        assert (await house.ask(NOBODY, "chain.getBlock", height=1))["is_final"] is True
        for height in (0, 3, -1):
            assert (await house.refusal(NOBODY, "chain.getBlock", height=height))[:2] == ("NotFound", "CHN-001")


@pytest.mark.rule("CHN-003")
async def test_a_list_of_blocks_has_the_orphaned_ones_too() -> None:
    async with rpc_node() as house:
        await seal(house, 3)
        await house.ask(OPERATOR, "chain.rollBack", height=1)
        await seal(house, 2)
        await house.engine.wait_tables()
        listed = await house.ask(NOBODY, "chain.listBlocks")
        assert [(row["height"], row["status"]) for row in listed["rows"]] == [
            (1, "SEALED"),
            (2, "ORPHANED"),
            (3, "ORPHANED"),
            (2, "SEALED"),
            (3, "SEALED"),
        ]
        assert len((await house.ask(NOBODY, "chain.listBlocks", height=2))["rows"]) == 2
        assert (await house.refusal(NOBODY, "chain.listBlocks", limit=1_001))[0] == "InvalidParams"


@pytest.mark.rule("CHN-001", "CHN-004")
@pytest.mark.parametrize("depth", [0, 12])
async def test_a_light_client_is_convinced_of_every_admission(depth: int) -> None:
    async with rpc_node(final_after(depth)) as house:
        await house.mint()
        first = [await enqueue(house, n) for n in range(3)]
        assert (await house.refusal(NOBODY, "chain.proveAdmission", task_id=first[0]))[:2] == ("NoResultYet", "CHN-002")
        await seal(house, 2)
        later = await enqueue(house, 9)
        await seal(house)
        assert [await proved(house, each) for each in (*first, later)] == [1, 1, 1, 3]
        assert (await house.refusal(NOBODY, "chain.proveAdmission", task_id="00" * 32))[0] == "NotFound"


@pytest.mark.rule("CHN-003", "CHN-004")
async def test_after_a_reorg_an_admission_is_proved_by_the_block_that_has_it_now() -> None:
    async with rpc_node() as house:
        await house.mint()
        await seal(house, 4)
        id_ = await enqueue(house, 1)
        await seal(house)
        assert await proved(house, id_) == 5
        await house.ask(OPERATOR, "chain.rollBack", height=1)
        assert (await house.refusal(NOBODY, "chain.proveAdmission", task_id=id_))[0] == "NoResultYet"
        await seal(house)
        assert await proved(house, id_) == 2  # below the height it was admitted at
        await seal(house, 6)
        assert await proved(house, id_) == 2


@pytest.mark.rule("CHN-003", "SEC-001")
async def test_a_rollback_says_what_it_undid_and_who_wanted_it() -> None:
    async with rpc_node() as house:
        await house.mint()
        await enqueue(house, 1)
        await seal(house, 2)
        await enqueue(house, 2)
        undone = await house.ask(OPERATOR, "chain.rollBack", height=0)
        events = house.last_batch()
        assert events[0] == PrivilegedActRecorded(OPERATOR.name, "chain.rollBack", 4)
        assert [type(event) for event in events[1:]] == [
            BlockRolledBack,
            BlockRolledBack,
            BlockRolledBack,
            TransactionsReincluded,
        ]
        first: EventNo = EventNo(house.engine.undurable_state.last_event - 3)
        assert undone == {"event": first, "from_height": 2, "to_height": 0, "transactions": 2, "is_running": False}
        await house.ask(OPERATOR, "chain.rollBack", height=0)
        assert house.privileged_acts()[1:] == [(OPERATOR.name, "chain.rollBack")]


@pytest.mark.rule("CHN-003", "CHN-004")
async def test_a_large_rollback_is_answered_when_it_has_started_and_its_progress_can_be_asked_for() -> None:
    async with rpc_node() as house:
        await house.mint(amount=3_000)
        for nonce in range(300):
            await house.ask(ALICE, "cap.cancel", task_id=await enqueue(house, nonce))
        await seal(house, 3)
        undone = await house.ask(OPERATOR, "chain.rollBack", height=1)
        assert not undone["is_running"]
        started = await house.ask(OPERATOR, "chain.rollBack", height=0)
        assert (started["transactions"], started["is_running"]) == (600, True)
        head = await house.ask(NOBODY, "chain.getHead")
        assert head["block"]["height"] == 0
        assert head["rollback"] == {"event": started["event"], "blocks": 1, "transactions": 600}
        again = await house.ask(OPERATOR, "chain.rollBack", height=0)
        assert (again["event"], again["is_running"]) == (started["event"], True)
        refused = await house.refusal(OPERATOR, "chain.rollBack", height=1)
        assert refused[:2] == ("RollbackRunning", "CHN-003")
        await RollbackRunner(house.engine).run_once()
        head = await house.ask(NOBODY, "chain.getHead")
        assert (head["rollback"], head["open_transactions"]) == (None, 600)


@pytest.mark.rule("CHN-005")
async def test_no_rollback_goes_below_what_is_final_or_above_the_head() -> None:
    async with rpc_node(final_after(2)) as house:
        await seal(house, 5)
        assert (await house.refusal(OPERATOR, "chain.rollBack", height=2))[1] == "CHN-005"
        assert (await house.refusal(OPERATOR, "chain.rollBack", height=6))[:2] == ("NotFound", "CHN-003")
        assert (await house.refusal(OPERATOR, "chain.rollBack", height=-1))[1] == "CHN-005"
        await house.ask(OPERATOR, "chain.rollBack", height=3)
        assert house.engine.undurable_state.chain.head.height == Height(3)


@pytest.mark.rule("CHN-003")
async def test_on_a_production_network_rollback_is_refused() -> None:
    async with rpc_node(Policy(chain=final_after(5).chain)) as house:
        await seal(house, 2)
        assert "development" in (await house.refusal(OPERATOR, "chain.rollBack", height=1))[2]
