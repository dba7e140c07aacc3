"""Rolling back blocks full of results, and evicting final ones: how long it takes, and the longest step of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha512
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Table, at_most, interleave, show, table
from holdfast.core import state_machine
from holdfast.core.base.canonical import H, canonical
from holdfast.core.base.event import Decided
from holdfast.core.base.values import AccountId, Amount, Height, Network, ReservationId, Tier
from holdfast.core.chain.decide import has_evictable_txs, has_pending_settlements
from holdfast.core.chain.messages import (
    ContinueRollback,
    EvictFinalTxs,
    FinalizeSettlements,
    RollBackBlocks,
    SealBlock,
)
from holdfast.core.escrow.messages import Mint
from holdfast.core.match.messages import Match
from holdfast.core.policy import ChainPolicy, Policy, QuotaPolicy
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.proof.messages import RecordVerdict, SubmitCompletion
from holdfast.core.provider.messages import Heartbeat, Register, Stake
from holdfast.core.provider.model import provider_id
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.core.state import State

ALICE, OAK, KEY = AccountId("alice"), AccountId("oak"), bytes(32)
BLOCKS = 64
ROLLED_BACK, STEP = "rolled back and resolved again", "longest step of rolling back"
EVICTED, BATCH = "evicted when final", "longest step of evicting"
NOW_MS = 1_700_000_000_000
SEAL = SealBlock(KEY, lambda message: sha512(message).digest())


async def run(_: Path, *, is_quick: bool) -> list[Table]:
    """Blocks of 1 000 results each."""
    rounds, blocks, results = (2, 8, 100) if is_quick else (5, BLOCKS, 1_000)

    async def turn(_: int) -> Mapping[str, float]:
        world = ReorgState(blocks)
        for _ in range(blocks):
            world.fill(results)
        return world.roll_back(blocks) | world.evict(blocks)

    figures = await interleave((turn,), rounds)
    title = f"{blocks} blocks with {results} results each"
    found = table("results-reorg", title, "ms", figures, [ROLLED_BACK, STEP, EVICTED, BATCH], None)
    found.goals += [at_most(name, figures[name], 50, " ms") for name in (STEP, BATCH)]
    print(show(found), end="\n\n", flush=True)
    return [found]


class ReorgState:
    """A state with one provider that has room for everything."""

    def __init__(self, blocks: int) -> None:
        policy = Policy.for_network(Network.DEVELOPMENT)
        chain, quota = ChainPolicy(finality_depth=blocks + 1), QuotaPolicy(leases_per_provider_max=10**6)
        quota = msgspec.structs.replace(quota, ai_units_per_epoch=10**9)
        self.state, self._jobs = State(msgspec.structs.replace(policy, chain=chain, quota=quota)), 0
        self._id = provider_id(KEY)
        self.submit(Mint(ReservationId(H("bench.v1", 1)), ALICE, Amount(10**12)))
        self.submit(Mint(ReservationId(H("bench.v1", 2)), OAK, Amount(10_000)))
        told = ("oak", OAK, canonical({"AI": {"models": ["echo"]}}), "eu", 1, 10**6, NOW_MS + 10**10)
        self.submit(Register(KEY, *told))
        self.submit(Stake(self._id, Amount(10_000), ReservationId(H("bench.v1", 3))))
        self.submit(Heartbeat(self._id, 10**6))

    def submit(self, command: Any) -> Decided:
        decided = state_machine.decide(self.state, command, NOW_MS)
        assert isinstance(decided, Decided), decided
        for event in decided.events:
            state_machine.apply(self.state, event)
        return decided

    def fill(self, results: int) -> None:
        """One block, from admission to results."""
        for _ in range(results):
            self._jobs += 1
            payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
            command = build_enqueue(self.state.policy, ALICE, Tier.FREE, payload, 10, self._jobs)
            assert isinstance(command, Enqueue)
            self.submit(command)
        while self.submit(Match()).events:
            pass
        for lease in list(self.state.leases.by_id.values()):
            body = body_of(lease.job_id, lease.id, self._id, H("bench.v1", lease.job_id), 3, {})
            self.submit(SubmitCompletion(lease.id, self._id, Envelope(1, "attested", body, b"")))
            self.submit(RecordVerdict(lease.id, True))
        self.submit(SEAL)
        for touched in self.state.touched.values():
            touched.clear()

    def roll_back(self, blocks: int) -> dict[str, float]:
        to = Height(self.state.chain.head.height - blocks)
        whole, longest = _timed(self, RollBackBlocks(to), 0.0, 0.0)
        while self.state.chain.rollback is not None:
            whole, longest = _timed(self, ContinueRollback(), whole, longest)
        return {ROLLED_BACK: whole, STEP: longest}

    def evict(self, blocks: int) -> dict[str, float]:
        """All of them are in one block now, the fullest there can be."""
        whole, longest = 0.0, 0.0
        for _ in range(blocks + 2):
            whole, longest = _timed(self, SEAL, whole, longest)
        while has_pending_settlements(self.state):
            whole, longest = _timed(self, FinalizeSettlements(), whole, longest)
        while has_evictable_txs(self.state, as_of := self.state.last_event):
            whole, longest = _timed(self, EvictFinalTxs(as_of), whole, longest)
        return {EVICTED: whole, BATCH: longest}


def _timed(world: ReorgState, command: Any, whole: float, longest: float) -> tuple[float, float]:
    began = time.perf_counter()
    world.submit(command)
    took = (time.perf_counter() - began) * 1_000
    return whole + took, max(longest, took)


if __name__ == "__main__":
    import asyncio
    import sys

    asyncio.run(run(Path(), is_quick="--quick" in sys.argv))
