"""Seals the open block in time (CHN-002): often while something waits for a block, else once a minute."""

from __future__ import annotations

from holdfast.core.chain.decide import has_pending_settlements
from holdfast.core.chain.messages import FinalizeSettlements, SealBlock
from holdfast.core.state import State
from holdfast.engine.loop import Engine
from holdfast.ports import Signer


class Proposer:
    """Only the owner seals blocks."""

    starts_at_once = False

    def __init__(self, engine: Engine, signer: Signer) -> None:
        self._engine, self._signer = engine, signer
        self._started_ms = engine.now_ms()
        self.sealed = 0

    @property
    def interval_ms(self) -> int:
        """At most `block_ms`: an idle chain becomes busy without notice."""
        return max(1, min(self._engine.policy.chain.block_ms, self._due_in_ms()))

    async def run_once(self) -> None:
        """Seal the block if it is due; then make the money of final blocks available, in bounded steps (ESC-002)."""
        if self._due_in_ms() <= 0:
            await self._engine.submit(SealBlock(self._signer.public, self._signer.sign))
            self.sealed += 1
        while has_pending_settlements(self._engine.undurable_state):  # other commands come in between
            await self._engine.submit(FinalizeSettlements())

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
    """CHN-002: whether jobs, proofs or reads wait for a block, or payments for the blocks that make them final."""
    return bool(state.queue.depth or state.chain.open.txs or state.ledger.settled_by_height)
