"""Sealing the open block (CHN-001): by a validator, once there are blobs; they get its hash (BLB-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.handlers import Commands, Events
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.apply import seal_blobs
from holdfast.core.chain.header import SignedHeader, header_hash
from holdfast.core.chain.messages import BlockSealed, BlocksFinal, SealBlock
from holdfast.core.chain.model import OpenBlock, UnfinalizedBlock, block_of, copy_frontier, final_height, next_header
from holdfast.core.escrow.messages import Finalized
from holdfast.core.state import State
from holdfast.core.validator.decide import why_not_proposer

AT_ONCE_MAX: Final = 1_024
"""The most settlements that become final in one event; more of them become final in steps."""


def seal_block(state: State, command: SealBlock, now_ms: int) -> Decided | Refused:
    """CHN-001, CHN-002: all events so far are in the block; later ones are in the block above it."""
    if refusal := why_not_proposer(state, command.proposer):
        return refusal
    header = next_header(state, state.last_event, now_ms, command.proposer)
    hash_ = header_hash(header)
    sealed = BlockSealed(header.height, hash_, now_ms, command.proposer, command.sign(hash_))
    final = Height(header.height - state.policy.chain.finality_depth)
    if final <= final_height(state):
        return Decided((sealed,))
    waiting = sum(len(ids) for height, ids in state.ledger.settled_by_height.items() if height <= final)
    return Decided((sealed, Finalized(final) if waiting <= AT_ONCE_MAX else BlocksFinal(final)))


def apply_sealed(state: State, event: BlockSealed) -> None:
    """CHN-006: the header is computed again from the events; another hash is Corrupt."""
    chain = state.chain
    header = next_header(state, EventNo(state.last_event - 1), event.time_ms, event.proposer)
    if (header_hash(header), header.height) != (event.hash, event.height):
        hint = "chain_id must be that of the chain's first block; else the journal was changed"
        raise Corrupt("CHN-006", f"block {event.height} does not match the hash of its events", hint)
    block = block_of(state.last_event, SignedHeader(header, event.hash, event.signature))
    chain.unfinalized[event.height] = UnfinalizedBlock(block, chain.open.txs, copy_frontier(chain.log))
    chain.head, chain.open = block, OpenBlock()
    state.touched["block"][block.event] = block
    seal_blobs(state, event.height, event.hash, event.proposer)


COMMANDS: Final[Commands] = {SealBlock: seal_block}
EVENTS: Final[Events] = {BlockSealed: apply_sealed}
