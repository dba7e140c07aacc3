"""Seals the open block in time (CHN-002): often while something waits for a block, else once a minute."""

from __future__ import annotations

import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.chain.messages import FinalizeSettlements, SealBlock
from holdfast.core.chain.model import final_height
from holdfast.core.state import State
from holdfast.core.workflows.finalize import has_pending_settlements
from holdfast.engine.loop import Engine
from holdfast.ports import Signer

_log = structlog.get_logger()


class Proposer:
    """Only the owner seals blocks."""

    starts_at_once = False

    def __init__(self, engine: Engine, signer: Signer) -> None:
        self._engine, self._signer = engine, signer
        self._started_ms = engine.now_ms()
        self.sealed = 0
        self._refusal: str | None = None
        """Why the last block could not be sealed."""

    @property
    def interval_ms(self) -> int:
        """At most `block_ms`: an idle chain becomes busy without notice."""
        block_ms = self._engine.policy.chain.block_ms
        return block_ms if self._refusal else max(1, min(block_ms, self._due_in_ms()))

    async def run_once(self) -> None:
        """Seal the block if it is due; then make the money of final blocks available, in bounded steps (ESC-002)."""
        if self._due_in_ms() <= 0:
            await self._seal()
        while has_pending_settlements(self._engine.undurable_state):  # other commands come in between
            await self._engine.submit(FinalizeSettlements())

    async def _seal(self) -> None:
        outcome = await self._engine.submit(SealBlock(self._signer.public, self._signer.sign))
        if not isinstance(outcome, Refused):
            self.sealed, self._refusal = self.sealed + 1, None
        elif outcome.message != self._refusal:  # told once
            self._refusal = outcome.message
            _log.error("block_refused", reason=outcome.message, hint=outcome.hint)

    def _due_in_ms(self) -> int:
        engine = self._engine
        policy, state = engine.policy.chain, engine.undurable_state
        if state.chain.rollback is not None:  # CHN-004: nothing is sealed before its end
            return policy.block_ms
        every_ms = policy.block_ms if is_busy(state) else policy.idle_block_ms
        head = state.chain.head
        since_ms = head.time_ms if head.height else self._started_ms
        return since_ms + every_ms - engine.now_ms()


def is_busy(state: State) -> bool:
    """CHN-002: whether jobs, proofs or reads wait for a block, or payments and blobs for those that make them final."""
    ledger = state.ledger
    if next(reversed(state.blob_heights), 0) > final_height(state):
        return True
    return bool(state.queue.depth or state.chain.open.txs or ledger.settled_by_height or ledger.withdrawals)
