"""What a light client needs: the transactions of a block, and proofs that it checks with the proposer's key alone."""

from __future__ import annotations

import msgspec

from holdfast.core import law
from holdfast.core.chain.apply import tx_leaf
from holdfast.core.chain.blocks import Block
from holdfast.core.merkle import prove_inclusion, root
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.values import BatchNo, Digest, EventNo
from holdfast.ports import Journal


class TxProof(msgspec.Struct, frozen=True):
    """That a transaction is in a block: its leaf, where it is, and the way up to the header's `tx_root` (RFC 6962)."""

    leaf: bytes
    index: int
    size: int
    path: list[Digest]


async def transactions(journal: Journal, block: Block) -> list[tuple[EventNo, bytes]] | Refused:
    """CHN-001: the leaves of a block, read from the journal events that it covers; a block copies nothing."""
    first, last = await journal.batch_of(block.first_event), await journal.batch_of(block.last_event)
    if first is None or last is None:
        hint = "history was deleted from the archive: bring its chapters back"
        return Refused("CHN-001", f"the events of block {block.height} are not kept any more", hint, "NotFound")
    leaves = []
    async for batch in journal.read(BatchNo(first - 1), last):
        for number, event in enumerate(law.unpack(batch), start=batch.first):
            if block.first_event <= number <= block.last_event and (found := law.TRANSACTIONS.get(type(event))):
                kind, subject, about = found
                leaves.append((EventNo(number), tx_leaf(kind, EventNo(number), subject(event), about(event))))
    if root([leaf for _, leaf in leaves]) != block.tx_root:
        hint = "run holdfast chain replay"
        raise Corrupt("CHN-001", f"the transactions of block {block.height} do not give its root", hint)
    return leaves


async def prove_transaction(journal: Journal, block: Block, event: EventNo) -> TxProof | Refused:
    """The proof that the transaction which is this event is in this block."""
    leaves = await transactions(journal, block)
    if isinstance(leaves, Refused):
        return leaves
    for index, (number, leaf) in enumerate(leaves):
        if number == event:
            return TxProof(leaf, index, len(leaves), prove_inclusion([each for _, each in leaves], index))
    return Refused("CHN-001", f"event {event} is no transaction of block {block.height}", name="NotFound")
