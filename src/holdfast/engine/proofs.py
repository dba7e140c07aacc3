"""Proofs that a node makes and `lightclient` checks: transactions in blocks, logs that only grew."""

from __future__ import annotations

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.merkle import prove_consistency, prove_inclusion, root
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.chain.model import Block
from holdfast.core.chain.transactions import tx_leaf
from holdfast.core.transactions import TRANSACTIONS
from holdfast.engine import queries
from holdfast.lightclient.tx_proof import TxProof
from holdfast.ports import Journal


async def block_transactions(journal: Journal, block: Block) -> list[tuple[EventNo, bytes]] | Refused:
    """CHN-001: the leaves of a block, read from the journal events that it covers; a block holds no copy."""
    first, last = await journal.batch_of(block.first_event), await journal.batch_of(block.last_event)
    if first is None or last is None:
        hint = "history was deleted from the archive: restore its segments"
        return Refused("CHN-001", f"the events of block {block.height} are not stored any more", hint, "NotFound")
    leaves = []
    async for batch in journal.read(BatchNo(first - 1), last):
        for number, event in enumerate(journal_codec.unpack(batch), start=batch.first):
            if block.first_event <= number <= block.last_event and (columns := TRANSACTIONS.get(type(event))):
                kind, subject, about = columns
                leaves.append((EventNo(number), tx_leaf(kind, EventNo(number), subject(event), about(event))))
    if root([leaf for _, leaf in leaves]) != block.tx_root:
        hint = "run holdfast chain replay"
        raise Corrupt("CHN-001", f"the transactions of block {block.height} do not have its root", hint)
    return leaves


async def prove_transaction(journal: Journal, block: Block, event: EventNo) -> TxProof | Refused:
    """The proof that this event is a transaction of this block."""
    leaves = await block_transactions(journal, block)
    if isinstance(leaves, Refused):
        return leaves
    for index, (number, leaf) in enumerate(leaves):
        if number == event:
            return TxProof(leaf, index, len(leaves), prove_inclusion([each for _, each in leaves], index))
    return Refused("CHN-001", f"event {event} is not a transaction of block {block.height}", name="NotFound")


async def prove_log_consistency(source: queries.ReadSource, first: Block, second: Block) -> list[Digest]:
    """RES-008: the proof that the log of a block is a prefix of the log of a later block."""
    leaves = await queries.leaves(source, 0, second.log_size)
    if root(leaves) != second.log_root:
        raise Corrupt(
            "RES-008", f"the leaves do not have the log root of block {second.height}", "run holdfast db rebuild"
        )
    return prove_consistency(leaves, first.log_size)
