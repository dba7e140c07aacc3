"""What escrow publishes to the state machine; `Finalized` is applied by the workflow `finalize`."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import ClaimKeys, Commands, Events
from holdfast.core.escrow import apply, decide, messages

COMMANDS: Final[Commands] = {
    messages.Mint: decide.mint,
    messages.Deposit: decide.deposit,
    messages.Withdraw: decide.withdraw,
    messages.ReturnWithdrawal: decide.return_withdrawal,
    messages.Reserve: decide.reserve,
    messages.Charge: decide.charge,
    messages.Refund: decide.refund,
    messages.Finalize: decide.finalize,
    messages.RollBackSettlements: decide.roll_back,
}
EVENTS: Final[Events] = {
    messages.Minted: apply.apply_minted,
    messages.Deposited: apply.apply_deposited,
    messages.Withdrawn: apply.apply_withdrawn,
    messages.WithdrawalReturned: apply.apply_returned,
    messages.WithdrawalFinal: apply.apply_withdrawal_final,
    messages.Reserved: apply.apply_reserved,
    messages.Charged: apply.apply_charged,
    messages.Refunded: apply.apply_refunded,
    messages.SettlementsRolledBack: apply.apply_settlements_rolled_back,
}
CLAIM_KEYS: Final[ClaimKeys] = {
    messages.Mint: lambda _, command: (messages.mint_key(command),),
    messages.Deposit: lambda _, command: (messages.transfer_key(command),),
    messages.Withdraw: lambda _, command: (messages.transfer_key(command),),
    messages.ReturnWithdrawal: lambda _, command: (messages.return_key(command.reference),),
    messages.Reserve: lambda _, command: (messages.reservation_key(command.id),),
    messages.Charge: decide.settlement_claim,
    messages.Refund: decide.settlement_claim,
}
