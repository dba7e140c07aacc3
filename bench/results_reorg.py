"""Taking back blocks full of results, and letting final ones go: how long it takes, and the longest step of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import sha512
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import Table, at_most, interleave, show, table
from holdfast.core import law
from holdfast.core.canon import H, canonical
from holdfast.core.chain.acts import Release, RollBack, Seal
from holdfast.core.chain.decide import is_releasing
from holdfast.core.escrow.acts import Mint
from holdfast.core.event import Decided
from holdfast.core.match.decide import Match
from holdfast.core.policy import ChainPolicy, Policy, QuotaPolicy
from holdfast.core.proof.acts import Judge, Submit
from holdfast.core.proof.envelope import Envelope, body_of
from holdfast.core.provider.acts import Beat, Register, Stake
from holdfast.core.provider.record import provider_id
from holdfast.core.queue.acts import Enqueue
from holdfast.core.queue.decide import prepare
from holdfast.core.state import State
from holdfast.core.values import AccountId, Amount, Height, HoldId, Network, Tier

ALICE, OAK, KEY = AccountId("alice"), AccountId("oak"), bytes(32)
BLOCKS = 64
UNDONE, LET_GO, LOT = "taken back and resolved again", "let go when final", "longest step of letting go"
NOW_MS = 1_700_000_000_000
SEAL = Seal(KEY, lambda message: sha512(message).digest())


async def run(_: Path, *, is_quick: bool) -> list[Table]:
    """Blocks of 1 000 results each."""
    rounds, blocks, results = (2, 8, 100) if is_quick else (5, BLOCKS, 1_000)

    async def turn(_: int) -> Mapping[str, float]:
        world = World(blocks)
        for _ in range(blocks):
            world.fill(results)
        return world.rolled_back(blocks) | world.let_go(blocks)

    figures = await interleave((turn,), rounds)
    title = f"{blocks} blocks with {results} results each"
    found = table("results-reorg", title, "ms", figures, [UNDONE, LET_GO, LOT], None)
    found.goals.append(at_most("longest step of letting go", figures[LOT], 50, " ms"))
    print(show(found), end="\n\n", flush=True)
    return [found]


class World:
    """A state with one provider that has room for everything."""

    def __init__(self, blocks: int) -> None:
        policy = Policy.for_network(Network.DEVELOPMENT)
        chain, quota = ChainPolicy(finality_depth=blocks + 1), QuotaPolicy(leases_per_provider_max=10**6)
        quota = msgspec.structs.replace(quota, ai_units_per_epoch=10**9)
        self.state, self._jobs = State(msgspec.structs.replace(policy, chain=chain, quota=quota)), 0
        self._id = provider_id(KEY)
        self.do(Mint(HoldId(H("bench.v1", 1)), ALICE, Amount(10**12)))
        self.do(Mint(HoldId(H("bench.v1", 2)), OAK, Amount(10_000)))
        told = ("oak", OAK, canonical({"AI": {"models": ["echo"]}}), "eu", 1, 10**6, NOW_MS + 10**10)
        self.do(Register(KEY, *told))
        self.do(Stake(self._id, Amount(10_000), HoldId(H("bench.v1", 3))))
        self.do(Beat(self._id, 10**6))

    def do(self, command: Any) -> Decided:
        decided = law.decide(self.state, command, NOW_MS)
        assert isinstance(decided, Decided), decided
        for event in decided.events:
            law.apply(self.state, event)
        return decided

    def fill(self, results: int) -> None:
        """One block, from admission to results."""
        for _ in range(results):
            self._jobs += 1
            payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
            command = prepare(self.state.policy, ALICE, Tier.FREE, payload, 10, self._jobs)
            assert isinstance(command, Enqueue)
            self.do(command)
        while self.do(Match()).events:
            pass
        for lease in list(self.state.leases.by_id.values()):
            body = body_of(lease.job_id, lease.id, self._id, H("bench.v1", lease.job_id), 3, {})
            self.do(Submit(lease.id, self._id, Envelope(1, "attested", body, b"")))
            self.do(Judge(lease.id, True))
        self.do(SEAL)
        for touched in self.state.touched.values():
            touched.clear()

    def rolled_back(self, blocks: int) -> dict[str, float]:
        began = time.perf_counter()
        self.do(RollBack(Height(self.state.chain.head.height - blocks)))
        return {UNDONE: (time.perf_counter() - began) * 1_000}

    def let_go(self, blocks: int) -> dict[str, float]:
        """All of them are in one block now, the fullest there can be."""
        whole, longest = 0.0, 0.0
        for _ in range(blocks + 2):
            whole, longest = _timed(self, SEAL, whole, longest)
        while is_releasing(self.state):
            whole, longest = _timed(self, Release(), whole, longest)
        return {LET_GO: whole, LOT: longest}


def _timed(world: World, command: Any, whole: float, longest: float) -> tuple[float, float]:
    began = time.perf_counter()
    world.do(command)
    took = (time.perf_counter() - began) * 1_000
    return whole + took, max(longest, took)


if __name__ == "__main__":
    import asyncio
    import sys

    asyncio.run(run(Path(), is_quick="--quick" in sys.argv))
