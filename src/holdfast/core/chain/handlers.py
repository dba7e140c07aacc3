"""What the chain publishes to the state machine; sealing, and what its events do, is in the workflows
seal, roll_back and finalize."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands
from holdfast.core.chain import decide
from holdfast.core.chain.messages import EvictFinalTxs, FinalizeSettlements

COMMANDS: Final[Commands] = {
    FinalizeSettlements: decide.finalize_settlements,
    EvictFinalTxs: decide.evict_final_txs,
}
