"""Blobs that come back together are verified together, and each caller gets the answer of its own blob (ARC-004)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.simulation.kzg import SimulatedKzg, work_of

from holdfast.core.base.errors import Unavailable
from holdfast.ports.blobs import KzgWork
from holdfast.workers.archive.verify_batches import BATCH_MAX, VerifyBatches


class GatedKzg(SimulatedKzg):
    """Answers when the test says so, and fails at the call that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.sizes, self.fails_at = asyncio.Event(), list[int](), 0

    async def verify(self, blobs: Sequence[tuple[bytes, KzgWork]]) -> list[bool]:
        self.sizes.append(len(blobs))
        await self.gate.wait()
        if len(self.sizes) == self.fails_at:
            raise Unavailable("BLB-001", "simulated: the process ended")
        return await super().verify(blobs)


@pytest.mark.rule("ARC-004")
async def test_what_arrives_while_a_call_runs_is_the_next_call_and_each_gets_its_own_answer() -> None:
    kzg = GatedKzg()
    batches, raws = VerifyBatches(kzg), [bytes([number]) for number in range(BATCH_MAX + 4)]
    first = asyncio.create_task(batches.is_same(b"first", work_of(b"first")))
    await asyncio.sleep(0)
    others = [asyncio.create_task(batches.is_same(raw, work_of(raw if raw != b"\3" else b"other"))) for raw in raws]
    await asyncio.sleep(0)
    others[-1].cancel()  # nobody waits for this one any more
    kzg.gate.set()
    assert await first
    answers = await asyncio.gather(*others[:-1])
    assert [number for number, is_same in enumerate(answers) if not is_same] == [3]
    assert kzg.sizes == [1, BATCH_MAX, 4]


@pytest.mark.rule("ARC-004")
async def test_a_call_that_fails_is_told_to_its_own_callers_and_the_next_one_runs() -> None:
    kzg = GatedKzg()
    kzg.fails_at = 1
    batches = VerifyBatches(kzg)
    first = asyncio.create_task(batches.is_same(b"first", work_of(b"first")))
    await asyncio.sleep(0)
    second = asyncio.create_task(batches.is_same(b"second", work_of(b"second")))
    await asyncio.sleep(0)
    kzg.gate.set()
    with pytest.raises(Unavailable, match="simulated"):
        await first
    assert await second
