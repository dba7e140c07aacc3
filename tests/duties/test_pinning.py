"""Outputs are kept hot or pinned when their proof is judged (TIER-001, DA-001): by their size alone."""

from __future__ import annotations

import asyncio

import pytest
from tests.duties.retained import House, policy

from holdfast.core.canon import decode
from holdfast.core.da import commitment_of
from holdfast.core.proof.finding import Finding, Method, Where
from holdfast.core.result.record import Result
from holdfast.duties.verifier import Verifier
from holdfast.engine import read

GOOD = {"attested": Method("as the test says", lambda _: Finding(True, "good"), Where.THREAD)}


async def judged(home: House, output: bytes) -> Result:
    """Handed in and judged by the duty itself."""
    task, lease = await home.offered(output)
    await home.engine.submit(home.handing_in(task, lease, output))
    duty = asyncio.create_task(Verifier(home.engine, GOOD, home.blobs).run())
    async with asyncio.timeout(60):
        while task not in home.engine.state.results:
            await asyncio.sleep(0)
    duty.cancel()
    return await home.record(task)


@pytest.mark.rule("TIER-001", "DA-001")
@pytest.mark.parametrize(
    ("size", "most", "is_hot", "is_pinned"),
    [
        (0, 64, True, False),
        (64, 64, True, False),
        (65, 64, False, True),
        (5_000, 64, False, True),
        (0, 0, False, False),
        (1, 0, False, True),
    ],
)
async def test_what_is_too_large_to_be_hot_is_pinned(size: int, most: int, is_hot: bool, is_pinned: bool) -> None:
    home = House(policy(max_inline_bytes=most))
    await home.furnished()
    output = bytes(n % 251 for n in range(size))
    found = await judged(home, output)
    assert await read.hot_output(home.engine, found) == (output if is_hot else None)
    assert found.da_commitment == (commitment_of(b"alice", output) if is_pinned else None)
    await home.engine.projector.drain()
    _, place, raw = home.world.tables.rows["leaf"][found.leaf_index]
    del place
    assert decode(raw)[4] == found.da_commitment  # type: ignore[index, arg-type]
    await home.killed()
