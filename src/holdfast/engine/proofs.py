"""Proofs that a node makes and `lightclient` checks: transactions in blocks, logs that only grew.

Everybody may ask for them, and blocks and the log may be long: they are hashed a slice at a time (SEC-002).
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from typing import Final

from holdfast.core import journal_codec
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.merkle import (
    Frontier,
    consistency_ranges,
    inclusion_ranges,
    leaf_hash,
    root,
    verify_consistency,
)
from holdfast.core.base.values import BatchNo, Digest, EventNo
from holdfast.core.chain.model import Block, tx_leaf
from holdfast.core.workflows.include import TRANSACTIONS
from holdfast.engine import queries
from holdfast.engine.queries.chain import GetChainHead
from holdfast.lightclient.tx_proof import TxProof
from holdfast.ports import Journal

SLICE: Final = 512
"""Leaves that are hashed between two turns of the loop, about a millisecond. A power of two: a slice is a subtree."""
KnownSlices = MutableMapping[int, Digest]
"""The roots of slices of the log of results that are final, by the index of their first leaf."""


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
        await asyncio.sleep(0)
    if await root_in_slices([leaf for _, leaf in leaves]) != block.tx_root:
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
            return TxProof(leaf, index, len(leaves), await inclusion_path([each for _, each in leaves], index))
    return Refused("CHN-001", f"event {event} is not a transaction of block {block.height}", name="NotFound")


async def inclusion_path(leaves: Sequence[bytes], index: int) -> list[Digest]:
    """The path of a leaf, computed a slice at a time."""
    ranges = inclusion_ranges(len(leaves), index)
    return [await root_in_slices(leaves[each.start : each.stop]) for each in ranges]


async def root_in_slices(leaves: Sequence[bytes]) -> Digest:
    """`merkle.root`, a slice at a time."""
    tree = Frontier()
    for start in range(0, len(leaves), SLICE):
        tree.extend(map(leaf_hash, leaves[start : start + SLICE]))
        await asyncio.sleep(0)
    return tree.root()


async def prove_log_consistency(
    source: queries.ReadSource, first: Block, second: Block, known: KnownSlices
) -> list[Digest]:
    """RES-008: the proof that the log of a block is a prefix of the log of a later block."""
    final = await queries.block(source, (await source.query_durable(GetChainHead())).finalized)
    final_size = 0 if final is None else final.log_size
    ranges = consistency_ranges(second.log_size, first.log_size)
    path = [await _log_root(source, each, final_size, known) for each in ranges]
    if not verify_consistency(first.log_size, first.log_root, second.log_size, second.log_root, path):
        raise Corrupt(
            "RES-008", f"the leaves do not have the log root of block {second.height}", "run holdfast db rebuild"
        )
    return path


async def _log_root(source: queries.ReadSource, indexes: range, final_size: int, known: KnownSlices) -> Digest:
    """The root over these leaves of the log: that of the roots of their slices, the last of which may be shorter."""
    tree = Frontier()
    for start in range(indexes.start, indexes.stop, SLICE):
        stop = min(start + SLICE, indexes.stop)
        found = known.get(start) if stop - start == SLICE else None
        if found is None:
            found = root(await queries.leaves(source, start, stop - start))
            if stop - start == SLICE and stop <= final_size:
                known[start] = found
        tree.append(found)
    return tree.root()
