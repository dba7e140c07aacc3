"""A soak: 100 000 jobs go the whole way through a real node, and each may leave only so many bytes in its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression

from bench.data_flow.raised_limits import describe_limits
from bench.data_flow.real_network import BLOCK_MS, RealNetwork
from bench.measure import Table, at_most, show, table
from bench.stores import Store

CALLERS, SLOTS = 32, 256
SETTLE_S = 10 * BLOCK_MS / 1_000
"""Blocks until the jobs of a step are final, and evicted."""
FROM_SHARE = 0.2
"""Where the slope begins: before it caches fill and memory is still taken in large pieces."""
BYTES_MAX = 150
OWNER, OTHERS, ALL = "owner", "its other processes", "all of the node"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """The slope of the node's memory from 20 000 to 100 000 finished jobs."""
    jobs, step = (320, 64) if is_quick else (100_000, 5_000)
    done, samples = list[int](), list[list[int]]()
    async with RealNetwork(Store(folder).place("soak"), 1, SLOTS) as network:
        for count in range(step, jobs + 1, step):
            await network.run_jobs(CALLERS, step)
            await asyncio.sleep(SETTLE_S)
            done.append(count)
            samples.append(network.memory_bytes())
    made = _slopes(jobs, done, samples)
    made.notes.append(describe_limits(SLOTS))
    print(show(made), end="\n\n", flush=True)
    return [made]


def _slopes(jobs: int, done: Sequence[int], samples: Sequence[Sequence[int]]) -> Table:
    first = int(jobs * FROM_SHARE)
    counted = [(count, memory) for count, memory in zip(done, samples, strict=True) if count >= first]
    counts = [float(count) for count, _ in counted]
    parts = {
        OWNER: [float(memory[0]) for _, memory in counted],
        OTHERS: [float(sum(memory[1:])) for _, memory in counted],
        ALL: [float(sum(memory)) for _, memory in counted],
    }
    slopes = {name: [linear_regression(counts, values).slope] for name, values in parts.items()}
    title = f"Memory a finished job leaves in the node, from {first} to {jobs} jobs"
    made = table("soak", title, "bytes/job", slopes, list(slopes), None)
    made.goals += [at_most(name, slopes[name], BYTES_MAX, " bytes") for name in (OWNER, OTHERS)]
    for name in (OWNER, OTHERS):
        made.notes.append(
            f"{name}: {parts[name][0] / 2**20:.1f} MiB at {first}, {parts[name][-1] / 2**20:.1f} at the end"
        )
    made.notes.append("least squares through the resident memory after every step, when its jobs are final")
    return made
