"""What the chain publishes to the state machine; rollback and finality are the workflows roll_back and finalize."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.chain import apply, decide
from holdfast.core.chain.messages import BlockSealed, EvictFinalTxs, FinalizeSettlements, SealBlock

COMMANDS: Final[Commands] = {
    SealBlock: decide.seal_block,
    FinalizeSettlements: decide.finalize_settlements,
    EvictFinalTxs: decide.evict_final_txs,
}
EVENTS: Final[Events] = {BlockSealed: apply.apply_sealed}
