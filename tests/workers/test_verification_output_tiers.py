"""Outputs are stored hot or get a commitment with their verdict (TIER-001, DA-001): by their size alone."""

from __future__ import annotations

import asyncio

import pytest
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.core.base.canonical import decode
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.lightclient.da import commitment_of
from holdfast.ports.verifier import Isolation, ProofMethod, VerificationResult
from holdfast.workers.verification_scheduler import VerificationScheduler

GOOD = {"attested": ProofMethod("as the test says", lambda _: VerificationResult(True, "good"), Isolation.THREAD)}


async def verified_result(home: RetentionNode, output: bytes) -> Result:
    """Submitted, and verified by the worker itself."""
    task, lease = await home.leased_job(output)
    await home.engine.submit(home.completion(task, lease, output))
    duty = asyncio.create_task(VerificationScheduler(home.engine, GOOD, home.blobs).run())
    async with asyncio.timeout(60):
        while task not in home.engine.undurable_state.results:
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
async def test_what_is_too_large_to_be_hot_gets_a_da_commitment(
    size: int, most: int, is_hot: bool, is_pinned: bool
) -> None:
    home = RetentionNode(policy(max_inline_bytes=most))
    await home.open_with_provider()
    output = bytes(n % 251 for n in range(size))
    found = await verified_result(home, output)
    assert await queries.hot_output(home.engine, found) == (output if is_hot else None)
    assert found.da_commitment == (commitment_of(b"alice", output) if is_pinned else None)
    await home.engine.wait_tables()
    _, place, raw = home.world.tables.rows["leaf"][found.leaf_index]
    del place
    assert decode(raw)[4] == found.da_commitment  # type: ignore[index, arg-type]
    await home.kill()
