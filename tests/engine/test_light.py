"""Light clients: every transaction of every block is proved against its header alone, also after a reorg."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.blocks import Life, Step, final_after, lives
from tests.core.books import some_id
from tests.counts import counts
from tests.simulated.journal import SimulatedJournal
from tests.simulated.world import SimulatedFiles, World

from holdfast.core import law
from holdfast.core.chain.blocks import Block
from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Tip, tip_of
from holdfast.core.merkle import verify_inclusion
from holdfast.core.policy import EnginePolicy, Policy
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import AccountId, Amount, BatchNo, Epoch, EventNo, Height
from holdfast.engine import read
from holdfast.engine.light import TxProof, prove_transaction, transactions
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.loop import Engine

pytestmark = pytest.mark.rule("CHN-001")


async def stored(history: list[Step], depth: int, size: int) -> tuple[Life, World]:
    """A life, and a node that has its journal."""
    life, world = Life(final_after(depth)), World(final_after(depth))
    for step in history:
        life.take(step)
    tip = Tip()
    for at in range(0, len(life.events), size):
        world.disk.batches.append(law.pack(tip, Epoch(1), life.events[at : at + size], life.now_ms))
        tip = tip_of(world.disk.batches[-1])
    return life, world


async def blocks(engine: Engine) -> list[Block]:
    found = [await read.block(engine, Height(h)) for h in range(1, engine.state.chain.head.height + 1)]
    assert all(found)
    return [block for block in found if block is not None]


@pytest.mark.rule("CHN-003", "CHN-004")
@given(lives, st.integers(0, 5), st.integers(1, 9))
@settings(max_examples=counts(25, 300))
async def test_each_transaction_is_proved_by_the_one_block_it_is_in(history: list[Step], depth: int, size: int) -> None:
    life, world = await stored(history, depth, size)
    engine = await world.started()
    proved = []
    for block, beside in zip(await blocks(engine), life.naive.blocks[1:], strict=True):
        found = await transactions(engine.journal, block)
        assert found == [(tx.number, tx.leaf()) for tx in beside.txs]
        for index, (number, leaf) in enumerate(found):
            proof = await prove_transaction(engine.journal, block, number)
            assert isinstance(proof, TxProof)
            assert (proof.leaf, proof.index, proof.size) == (leaf, index, block.tx_count)
            assert verify_inclusion(block.tx_root, proof.leaf, proof.index, proof.size, proof.path)
            assert len(proof.path) == len(naive.sides(index, block.tx_count))
            proved.append(number)
    await engine.stop()
    assert proved == [number for number in life.transactions() if number not in [tx.number for tx in life.naive.open]]


@pytest.mark.rule("CHN-003")
async def test_the_transactions_of_an_orphaned_block_can_still_be_read() -> None:
    _, world = await stored([Step("enqueue", 1, 5), Step("seal"), Step("back", 1), Step("seal")], 5, 2)
    engine = await world.started()
    await engine.projector.drain()
    rows = [row for row in world.tables.rows["block"].values() if row[1] == 1]
    gone, new = (msgspec.convert(row, Block, builtin_types=(bytes,)) for row in rows)
    assert (gone.status, new.status) == ("ORPHANED", "SEALED")
    assert await transactions(engine.journal, gone) == await transactions(engine.journal, new)
    await engine.stop()


async def test_what_is_in_no_block_has_no_proof() -> None:
    _, world = await stored([Step("enqueue", 1, 5), Step("seal"), Step("enqueue", 2, 5)], 5, 2)
    engine = await world.started()
    (block,) = await blocks(engine)
    for number in (1, 2, 4, 5, 99):
        no = await prove_transaction(engine.journal, block, EventNo(number))
        assert isinstance(no, Refused)
        assert (no.rule, no.name) == ("CHN-001", "NotFound")
    assert isinstance(await prove_transaction(engine.journal, block, EventNo(3)), TxProof)
    await engine.stop()


async def test_a_journal_that_does_not_give_the_root_is_named() -> None:
    _, world = await stored([Step("enqueue", 1, 5), Step("seal")], 5, 2)
    engine = await world.started()
    (block,) = await blocks(engine)
    with pytest.raises(Corrupt, match="CHN-001: the transactions of block 1 do not give its root"):
        await transactions(engine.journal, msgspec.structs.replace(block, tx_root=block.log_root))
    await engine.stop()


@pytest.mark.rule("ENG-004")
async def test_history_that_moved_to_the_archive_still_proves_and_deleted_history_is_named() -> None:
    small = EnginePolicy(batch_events_max=1)
    policy: Policy = msgspec.structs.replace(final_after(5), engine=small)
    _, world = await stored([Step("enqueue", 1, 5), Step("seal"), Step("seal")], 5, 1)
    world.policy = policy
    engine = await world.started()
    await engine.submit(Mint(some_id(3), AccountId("alice"), Amount(1)))
    (block, _) = await blocks(engine)
    archive = SimulatedFiles()
    journal = LongJournal(SimulatedJournal(world.disk, ignores_lock=True), archive)
    await journal.trim(BatchNo(4))
    assert world.disk.batches[0].number == 5
    proof = await prove_transaction(journal, block, EventNo(3))
    assert isinstance(proof, TxProof)
    assert verify_inclusion(block.tx_root, proof.leaf, proof.index, proof.size, proof.path)
    archive.files.clear()
    no = await prove_transaction(journal, block, EventNo(3))
    assert isinstance(no, Refused)
    assert "not kept any more" in no.says
    await engine.stop()
