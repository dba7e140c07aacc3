"""Sealing the open block (CHN-001): by a validator, once there are blobs; they get its hash (BLB-002)."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Decided
from holdfast.core.base.handlers import Commands, Events
from holdfast.core.blob.apply import seal_blobs
from holdfast.core.chain import apply as chain_apply
from holdfast.core.chain import decide as chain_decide
from holdfast.core.chain.messages import BlockSealed, SealBlock
from holdfast.core.state import State
from holdfast.core.validator.decide import why_not_proposer


def seal_block(state: State, command: SealBlock, now_ms: int) -> Decided | Refused:
    return why_not_proposer(state, command.proposer) or chain_decide.seal_block(state, command, now_ms)


def apply_sealed(state: State, event: BlockSealed) -> None:
    chain_apply.apply_sealed(state, event)
    seal_blobs(state, event.height, event.hash, event.proposer)


COMMANDS: Final[Commands] = {SealBlock: seal_block}
EVENTS: Final[Events] = {BlockSealed: apply_sealed}
