"""The scrubber reads every output again: in shares, over restarts, and repairs from the hot store what it can."""

from __future__ import annotations

import pytest
from tests.simulation.world import SimulatedFiles
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.core.result import result_digest
from holdfast.workers.warm_scrubber import PROGRESS_FILE, RUN_BYTES_MIN, WarmScrubber

pytestmark = pytest.mark.rule("TIER-001")
LARGE, SMALL = bytes(100), b"hot"
DAYS = 7


@pytest.fixture
async def node() -> RetentionNode:
    node = RetentionNode(policy())
    await node.open_with_provider()
    return node


def scrubber(node: RetentionNode, files: SimulatedFiles | None = None) -> WarmScrubber:
    return WarmScrubber(node.engine, node.blobs, files or SimulatedFiles(), node.clock, DAYS)


async def test_a_damaged_output_is_named_until_it_is_good_again(node: RetentionNode) -> None:
    await node.resolve(LARGE)
    digest = result_digest(LARGE)
    worker = scrubber(node)
    await worker.run_once()
    assert (worker.progress.damaged, worker.bytes_read) == (set(), len(LARGE))
    node.blobs.held[digest] = b"rotten"
    await worker.run_once()
    assert worker.progress.damaged == {digest.hex()}
    assert node.blobs.held[digest] == b"rotten"  # it stays where it is: a read of it is refused by name
    node.blobs.held[digest] = LARGE
    await worker.run_once()
    assert worker.progress.damaged == set()


async def test_an_output_that_the_hot_store_has_is_repaired(node: RetentionNode) -> None:
    await node.resolve(SMALL, seals=1)
    await node.engine.wait_tables()
    node.blobs.held[result_digest(SMALL)] = b"rot"
    worker = scrubber(node)
    await worker.run_once()
    assert node.blobs.held[result_digest(SMALL)] == SMALL
    assert (worker.progress.damaged, worker.repaired) == (set(), 1)


async def test_a_run_reads_its_share_and_the_next_one_goes_on_also_after_a_restart(node: RetentionNode) -> None:
    parts = [bytes([number]) * (RUN_BYTES_MIN // 2) for number in range(5)]
    node.blobs.held = {result_digest(raw): raw for raw in parts}
    files, reads = SimulatedFiles(), []
    for _ in range(3):
        worker = scrubber(node, files)  # as after a restart
        node.blobs.reads = 0
        await worker.run_once()
        reads.append(node.blobs.reads)
    assert reads == [2, 2, 1]
    assert worker.progress.position == 0
    assert worker.progress.passed_ms == node.clock.wall_ms()


async def test_a_pass_over_much_takes_its_days_and_no_longer(
    node: RetentionNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's share grows with the bytes: 7 days are 10 080 runs."""
    asked: list[int] = []
    worker = scrubber(node)

    async def usage() -> int:
        return 10_080 * 50 * RUN_BYTES_MIN

    async def read_page(budget: int) -> int:
        asked.append(budget)
        return budget

    monkeypatch.setattr(node.blobs, "usage", usage)
    monkeypatch.setattr(worker, "_read_page", read_page)
    await worker.run_once()
    assert asked == [50 * RUN_BYTES_MIN]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"position": "x"}'])
async def test_a_progress_file_that_cannot_be_read_begins_a_new_pass(node: RetentionNode, raw: bytes) -> None:
    await node.resolve(LARGE)
    files = SimulatedFiles()
    await files.replace(PROGRESS_FILE, raw)
    worker = scrubber(node, files)
    await worker.run_once()
    assert worker.bytes_read == len(LARGE)
