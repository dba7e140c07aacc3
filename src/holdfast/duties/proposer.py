"""The proposer: seals the open block in time (CHN-002), often while something waits, else once a minute."""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from holdfast.core.chain.acts import Release, Seal
from holdfast.core.chain.decide import is_releasing
from holdfast.core.refusal import Unavailable
from holdfast.core.state import State
from holdfast.engine.loop import Engine
from holdfast.ports import Clock

RETRY_MS: Final = 1_000
_log = structlog.get_logger()


class Signer(Protocol):
    """Whoever holds the proposer's key."""

    @property
    def public(self) -> bytes: ...
    def sign(self, message: bytes) -> bytes: ...


class Proposer:
    """The owner's duty: nobody else seals."""

    def __init__(self, engine: Engine, clock: Clock, signer: Signer) -> None:
        self._engine, self._clock, self._signer = engine, clock, signer
        self._begun_ms = engine.now_ms()
        self.sealed = 0

    async def run(self) -> None:
        """For ever; a node that recovers is asked again."""
        policy = self._engine.policy.chain
        while True:
            await self._clock.sleep(max(1, min(policy.block_ms, self._due_in_ms())))
            try:
                await self.look()
            except Unavailable as fault:
                _log.info("no block yet", because=str(fault))
                await self._clock.sleep(RETRY_MS)

    async def look(self) -> None:
        """Seal if it is time; then let go of what became final, lot by lot (ESC-002)."""
        if self._due_in_ms() <= 0:
            await self._engine.submit(Seal(self._signer.public, self._signer.sign))
            self.sealed += 1
        while is_releasing(self._engine.state):  # each lot is a command of its own: others get their turn in between
            await self._engine.submit(Release())

    def _due_in_ms(self) -> int:
        engine = self._engine
        policy, state = engine.policy.chain, engine.state
        every_ms = policy.block_ms if is_busy(state) else policy.idle_block_ms
        head = state.chain.head
        since_ms = head.time_ms if head.height else self._begun_ms
        return since_ms + every_ms - engine.now_ms()


def is_busy(state: State) -> bool:
    """CHN-002: whether jobs, proofs or reads wait for a block, or money for blocks that make it final."""
    return bool(state.queue.depth or state.chain.open.txs or state.ledger.settled)
