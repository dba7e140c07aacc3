"""Which heights are lined up for the archive: a bounded queue that drops nothing, and no height twice (ARC-003)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.base.values import Height
from holdfast.core.blob.model import BlobStatus
from holdfast.workers.archive.due_heights import DueHeights


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    for number in range(3):
        await node.resolve(b"out %d" % number, seals=1)
        await node.pack()
    await node.pack_final()
    yield node
    await node.kill()


@pytest.mark.rule("ARC-003")
async def test_heights_beyond_the_queue_are_found_again_and_none_is_dropped(node: ArchiveNode) -> None:
    due, heights = DueHeights(node.engine, node.signer.public, queue_max=2), sorted({x.blob.height for x in node.lives})
    await due.rescan()
    assert due.queue_len == len(heights) == 3  # what waits is counted, lined up or not
    assert [due.take(), due.take(), due.take()] == [*heights[:2], None]
    await due.refresh()
    assert due.take() == heights[2]
    node.archiver._due = DueHeights(node.engine, node.signer.public, queue_max=1)
    await node.archiver.run_once()
    assert {live.blob.status for live in node.lives} == {BlobStatus.ARCHIVED}


@pytest.mark.rule("ARC-003")
async def test_a_height_under_way_is_not_taken_a_second_time(node: ArchiveNode) -> None:
    due = DueHeights(node.engine, node.signer.public)
    await due.rescan()
    first = due.take()
    await due.rescan()
    others = [due.take(), due.take()]
    assert first is not None
    assert due.take() is None
    assert first not in others
    due.finish(Height(first))
    await due.rescan()
    assert due.take() == first  # its upload failed, or was cancelled
