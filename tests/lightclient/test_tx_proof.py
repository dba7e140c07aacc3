"""Light clients: every transaction of every block is proved against its header alone, also after a reorg."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core import naive
from tests.core.blocks import ChainRun, Step, final_after, step_sequences
from tests.core.commands import some_id
from tests.counts import counts
from tests.simulation.journal import SimulatedJournal
from tests.simulation.world import SimulatedFiles, World

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import JournalHead, head_of
from holdfast.core.base.merkle import verify_inclusion
from holdfast.core.base.values import AccountId, Amount, BatchNo, EventNo, Height, Term
from holdfast.core.chain.model import Block
from holdfast.core.escrow.messages import Mint
from holdfast.core.policy import EnginePolicy, Policy
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.proofs import block_transactions, prove_transaction
from holdfast.history.full_journal import FullJournal
from holdfast.lightclient.tx_proof import TxProof

pytestmark = pytest.mark.rule("CHN-001")


async def stored(history: list[Step], depth: int, size: int) -> tuple[ChainRun, World]:
    """A life, and a node that has its journal."""
    life, world = ChainRun(final_after(depth)), World(final_after(depth))
    for step in history:
        life.run_step(step)
    tip = JournalHead()
    for at in range(0, len(life.events), size):
        world.disk.batches.append(journal_codec.pack(tip, Term(1), life.events[at : at + size], life.now_ms))
        tip = head_of(world.disk.batches[-1])
    return life, world


async def blocks(engine: Engine) -> list[Block]:
    found = [await queries.block(engine, Height(h)) for h in range(1, engine.undurable_state.chain.head.height + 1)]
    assert all(found)
    return [block for block in found if block is not None]


@pytest.mark.rule("CHN-003", "CHN-004")
@given(step_sequences, st.integers(0, 5), st.integers(1, 9))
@settings(max_examples=counts(25, 300))
async def test_each_transaction_is_proved_by_the_one_block_it_is_in(history: list[Step], depth: int, size: int) -> None:
    life, world = await stored(history, depth, size)
    engine = await world.started()
    proved = []
    for block, beside in zip(await blocks(engine), life.naive.blocks[1:], strict=True):
        found = await block_transactions(engine.journal, block)
        assert found == [(tx.number, tx.leaf()) for tx in beside.txs]
        for index, (number, leaf) in enumerate(found):
            proof = await prove_transaction(engine.journal, block, number)
            assert isinstance(proof, TxProof)
            assert (proof.leaf, proof.index, proof.size) == (leaf, index, block.tx_count)
            assert verify_inclusion(block.tx_root, proof.leaf, proof.index, proof.size, proof.path)
            assert len(proof.path) == len(naive.sibling_sides(index, block.tx_count))
            proved.append(number)
    await engine.stop()
    assert proved == [number for number in life.transactions() if number not in [tx.number for tx in life.naive.open]]


@pytest.mark.rule("CHN-003")
async def test_the_transactions_of_an_orphaned_block_can_still_be_read() -> None:
    _, world = await stored([Step("enqueue", 1, 5), Step("seal"), Step("back", 1), Step("seal")], 5, 2)
    engine = await world.started()
    await engine.wait_tables()
    rows = [row for row in world.tables.rows["block"].values() if row[1] == 1]
    gone, new = (msgspec.convert(row, Block, builtin_types=(bytes,)) for row in rows)
    assert (gone.status, new.status) == ("ORPHANED", "SEALED")
    assert await block_transactions(engine.journal, gone) == await block_transactions(engine.journal, new)
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
    with pytest.raises(Corrupt, match="CHN-001: the transactions of block 1 do not have its root"):
        await block_transactions(engine.journal, msgspec.structs.replace(block, tx_root=block.log_root))
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
    journal = FullJournal(SimulatedJournal(world.disk, ignores_lock=True), archive)
    await journal.trim(BatchNo(4))
    assert world.disk.batches[0].number == 5
    proof = await prove_transaction(journal, block, EventNo(3))
    assert isinstance(proof, TxProof)
    assert verify_inclusion(block.tx_root, proof.leaf, proof.index, proof.size, proof.path)
    archive.files.clear()
    no = await prove_transaction(journal, block, EventNo(3))
    assert isinstance(no, Refused)
    assert "not stored any more" in no.message
    await engine.stop()
