"""What escrow publishes to the state machine; `Finalized` is applied by the workflow `finalize`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.escrow import apply, decide
from holdfast.core.escrow.messages import (
    Charge,
    Charged,
    Finalize,
    Mint,
    Minted,
    Refund,
    Refunded,
    Reserve,
    Reserved,
    RollBackSettlements,
    SettlementsRolledBack,
    mint_key,
    reservation_key,
)

COMMANDS: Final[Commands] = {
    Mint: decide.mint,
    Reserve: decide.reserve,
    Charge: decide.charge,
    Refund: decide.refund,
    Finalize: decide.finalize,
    RollBackSettlements: decide.roll_back,
}
EVENTS: Final[Events] = {
    Minted: apply.apply_minted,
    Reserved: apply.apply_reserved,
    Charged: apply.apply_charged,
    Refunded: apply.apply_refunded,
    SettlementsRolledBack: apply.apply_settlements_rolled_back,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    Mint: lambda _, command: (mint_key(command),),
    Reserve: lambda _, command: (reservation_key(command),),
    Charge: decide.settlement_claim,
    Refund: decide.settlement_claim,
}
