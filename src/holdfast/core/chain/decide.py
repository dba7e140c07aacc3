"""Whether a block may be sealed or taken back."""

from __future__ import annotations

from typing import Final

from holdfast.core.chain.acts import (
    BlockSealed,
    BlocksFinal,
    BlockUndone,
    Reincluded,
    Release,
    Released,
    RollBack,
    Seal,
)
from holdfast.core.chain.blocks import Linked, finalized, next_header
from holdfast.core.chain.header import header_hash
from holdfast.core.escrow.acts import Finalized
from holdfast.core.event import Decided, Event
from holdfast.core.refusal import Refused
from holdfast.core.values import Height, Network

AT_ONCE_MAX: Final = 1_024
"""So many settlements become final in one step; more of them in lots."""


def seal(state: Linked, command: Seal, now_ms: int) -> Decided | Refused:
    """CHN-001, CHN-002: everything decided so far is in the block; what comes next is in the one above it."""
    header = next_header(state, state.last_event, now_ms, command.proposer)
    name = header_hash(header)
    sealed = BlockSealed(header.height, name, now_ms, command.proposer, command.sign(name))
    final = Height(header.height - state.policy.chain.finality_depth)
    if final <= finalized(state):
        return Decided((sealed,))
    waiting = sum(len(ids) for height, ids in state.ledger.settled.items() if height <= final)
    return Decided((sealed, Finalized(final) if waiting <= AT_ONCE_MAX else BlocksFinal(final)))


def release(state: Linked, command: Release, _now_ms: int) -> Decided | Refused:
    """CHN-005, ESC-002: the next lot of what is final; a full block is let go without holding anybody up."""
    if not is_releasing(state):
        return Decided((), since=state.last_event)
    return Decided((Released(max(1, command.limit)),))


def is_releasing(state: Linked) -> bool:
    """Whether something of final blocks waits to be let go."""
    return bool(state.settling) or any(height <= finalized(state) for height in state.ledger.settled)


def roll_back(state: Linked, command: RollBack, _now_ms: int) -> Decided | Refused:
    """CHN-003, CHN-005: from the tip down, one block at a time, never below what is final."""
    chain, to = state.chain, command.height
    if state.policy.network is not Network.DEVELOPMENT:
        return Refused("CHN-003", "only a development network rolls back on demand", 'network = "development"')
    if to < (final := finalized(state)):
        return Refused("CHN-005", f"blocks up to {final} are final, {to} is below", "only later ones can be undone")
    if to > chain.head.height:
        return Refused("CHN-003", f"the chain ends at {chain.head.height}, there is no block {to}", name="NotFound")
    if to == chain.head.height:
        return Decided((), since=state.last_event)
    waiting = len(chain.open.txs) + sum(len(chain.recent[h].txs) for h in chain.recent if h > to)
    undone: list[Event] = [BlockUndone(Height(chain.head.height + 1), b"")]  # what the open block has done so far
    undone += [BlockUndone(h, chain.recent[h].block.hash) for h in reversed(chain.recent) if h > to]
    return Decided((*undone, Reincluded(Height(to + 1), waiting)))
