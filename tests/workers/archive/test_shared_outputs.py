"""Results with equal bytes: each is in a blob of its own, and all of them leave the disk when the archive has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.result import result_digest


@pytest.mark.rule("RET-002", "PRU-001")
async def test_bytes_that_several_results_share_are_archived_and_leave_the_disk(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    for _ in range(3):
        await node.resolve(b"the same", seals=1)
    await node.pack_final()
    await node.archiver.run_once()
    await node.engine.wait_tables()
    digest = result_digest(b"the same")
    assert list(await node.recorded.holds([(digest, 8)] * 3)) == [digest]
    await node.pass_days(2)
    await node.collector.resume_deletes()
    await node.collector.run_passes()
    assert digest not in node.blobs.held
    await node.kill()
