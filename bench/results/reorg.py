"""Rolling back blocks full of results, and evicting final ones, on a running node: how long its clients wait.

An engine fills a store once. Each round a node starts on a copy of it, rolls all blocks back when told to over RPC,
seals what waits again and evicts it when it is final. Meanwhile a client asks for the node's status all the time.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.stories.node_process import NodeProcess

from bench.answer_probe import PATIENCE_S, probing
from bench.engine.opened import close_engine, until_in_tables
from bench.measure import Table, at_most, interleave, show, table
from bench.queue import contestant
from bench.stores import StorePlace
from holdfast.client.node_socket import NodeSocket
from holdfast.core.policy import Policy

BLOCKS = 64
HOUR_MS, BLOCK_MS = 3_600_000, 20
QUIET = "nothing to do"
ROLLED_BACK, EVICTED = "rolling back and resolving again", "sealing all of it, and evicting it when final"
QUIET_S = 1.0
LONGEST_MS = 50
POLL_S = 0.01


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """64 blocks of 1 000 results each."""
    rounds, blocks, results, rest_s = (1, 4, 50, 0.5) if is_quick else (5, BLOCKS, 1_000, 5.0)
    await fill(folder / "filled", blocks, results)
    reorg = Reorg(folder, blocks, rest_s)
    figures = await interleave((reorg.turn,), rounds)
    what = f"{blocks} blocks with {results} results each"
    waits = table(
        "results-reorg-pauses", f"Longest answer of a node, {what}", "ms", figures, [QUIET, ROLLED_BACK, EVICTED], None
    )
    waits.goals += [at_most(name, figures[name], LONGEST_MS, " ms") for name in (ROLLED_BACK, EVICTED)]
    waits.notes.append("a client asks for the status again and again; a turn of the node's loop delays its answer")
    took = table("results-reorg", f"Rolling back {what}", "ms", reorg.took, list(reorg.took), None)
    for each in (waits, took):
        print(show(each), end="\n\n", flush=True)
    return [waits, took]


def reorg_policy(blocks: int) -> Policy:
    """Nothing is final before it is rolled back; limits are out of the way."""
    policy = contestant.policy_without_limits()
    chain = msgspec.structs.replace(policy.chain, finality_depth=blocks + 1, block_ms=HOUR_MS, idle_block_ms=HOUR_MS)
    return msgspec.structs.replace(policy, chain=chain)


async def fill(folder: Path, blocks: int, results: int) -> None:
    engine = await contestant.open_engine_with_providers(StorePlace(folder), 1, reorg_policy(blocks))
    await contestant.seal_blocks(engine)
    for _ in range(blocks):
        await contestant.enqueue_all(engine, contestant.make_enqueues(engine, results))
        done, _took = await contestant.drain_all(engine)
        assert done == results
        await contestant.seal_blocks(engine)
    await until_in_tables(engine)
    await close_engine(engine)


class Reorg:
    """A node on a copy of what was filled."""

    def __init__(self, folder: Path, blocks: int, rest_s: float) -> None:
        self._folder, self._blocks, self._rest_s = folder, blocks, rest_s
        self.took: dict[str, list[float]] = {ROLLED_BACK: []}

    async def turn(self, number: int) -> Mapping[str, float]:
        data = self._folder / f"round-{number}"
        shutil.copytree(self._folder / "filled", data)
        data.chmod(0o700)
        found = await self._roll_back(data) | await self._evict(data)
        shutil.rmtree(data)
        return found

    async def _roll_back(self, data: Path) -> dict[str, float]:
        node = NodeProcess(data, "node", self._settings())
        try:
            await node.up()
            async with NodeSocket(data, PATIENCE_S, answer_timeout_s=PATIENCE_S) as client, probing(data) as probe:
                await asyncio.sleep(QUIET_S)
                quiet, target = probe.take_ms(), await _height(client) - self._blocks
                began = time.perf_counter()
                await client.call("chain.rollBack", height=target)
                await _until(client, lambda head: head["block"]["height"] == target and not head.get("rollback"))
                self.took[ROLLED_BACK].append((time.perf_counter() - began) * 1e3)
                longest = probe.take_ms()
            await node.stop()
        finally:
            node.end()
        return {QUIET: quiet, ROLLED_BACK: longest}

    async def _evict(self, data: Path) -> dict[str, float]:
        """The fullest block there can be is sealed; when it is final, its transactions leave memory."""
        node = NodeProcess(data, "node", self._settings())
        try:
            await node.up()
            async with NodeSocket(data, PATIENCE_S, answer_timeout_s=PATIENCE_S) as client, probing(data) as probe:
                probe.take_ms()
                await _adopt_short_blocks(client)
                final = await _height(client) + self._blocks + 3
                await _until(client, lambda head: head["block"]["height"] >= final)
                await asyncio.sleep(self._rest_s)
                longest = probe.take_ms()
            await node.stop()
        finally:
            node.end()
        return {EVICTED: longest}

    def _settings(self) -> dict[str, str]:
        """The policy that the first start adopts."""
        policy = reorg_policy(self._blocks)
        chosen = {
            "CHAIN": {"BLOCK_MS": HOUR_MS, "IDLE_BLOCK_MS": HOUR_MS, "FINALITY_DEPTH": policy.chain.finality_depth},
            "QUOTA": {
                "LEASES_PER_PROVIDER_MAX": policy.quota.leases_per_provider_max,
                "AI_UNITS_PER_EPOCH": policy.quota.ai_units_per_epoch,
            },
        }
        settings = {
            f"HOLDFAST_POLICY__{part}__{name}": str(value)
            for part, values in chosen.items()
            for name, value in values.items()
        }
        return settings | {"HOLDFAST_LOG__LEVEL": "warning"}


async def _adopt_short_blocks(client: NodeSocket) -> None:
    policy = (await client.call("policy.getPolicy"))["policy"]
    policy["chain"] |= {"block_ms": BLOCK_MS, "idle_block_ms": BLOCK_MS}
    await client.call("policy.apply", policy=policy)


async def _height(client: NodeSocket) -> int:
    height: int = (await client.call("chain.getHead"))["block"]["height"]
    return height


async def _until(client: NodeSocket, is_reached: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_reached(await client.call("chain.getHead")):  # noqa: ASYNC110 - it asks another process
            await asyncio.sleep(POLL_S)
