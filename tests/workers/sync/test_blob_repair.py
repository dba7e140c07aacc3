"""Bytes that the archive lost after they were deleted here: another node has them, or an alarm says that nobody has."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from tests.workers.sync.conftest import Joined

from holdfast.core.archive.messages import VERIFIED
from holdfast.core.base.values import Height
from holdfast.core.blob.model import BlobStatus
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.engine.queries.blobs import archive_progress

LARGE = bytes(range(256)) * 1_500


async def lost_after_pruning(joined: Joined) -> Height:
    proposer = joined.proposer
    height = await proposer.add_blobs(LARGE)
    for follower in joined.followers.values():
        await follower.run()
    await proposer.archive_now()
    await proposer.pruner.run_once()
    await proposer.seal()
    assert (proposer.packs, height in proposer.engine.undurable_state.blob_heights) == ([], False)
    items = sorted((proposer.folder / "archived" / "items").glob("*.ans104"))
    blobs = [live.blob for live in await stored_blobs(proposer.engine, height)]
    lost = next(item for item in items if item.stem == blobs[1].item_id)
    lost.rename(joined.folder / lost.name)
    proposer.blobs.held.clear()  # the outputs are gone as well: else the node would pack them again
    return height


async def audit(joined: Joined) -> None:
    control = joined.proposer.control
    control.begin_audit(0)
    assert control._audit is not None
    await control._audit


@pytest.mark.rule("PRU-001", "SYN-002")
async def test_an_audit_archives_again_what_the_archive_lost_while_a_follower_has_it(joined: Joined) -> None:
    proposer = joined.proposer
    joined.add("blind", reads_back=False)  # it keeps its bytes
    height = await lost_after_pruning(joined)
    await audit(joined)
    assert [fault.number for fault in proposer.control.audit_report.faults] == [1]
    blobs = [live.blob for live in proposer.engine.undurable_state.blob_heights[height]]
    statuses = [blob.status for blob in blobs]
    assert statuses == [BlobStatus.ARCHIVED, BlobStatus.SUSPECT, BlobStatus.ARCHIVED, BlobStatus.ARCHIVED]
    await proposer.pruner.run_once()
    assert len(proposer.packs) == 1  # suspect: not pruned
    await proposer.archive_now()
    await proposer.pruner.run_once()
    assert proposer.packs == []
    await audit(joined)
    assert proposer.control.audit_report.faults == []
    rows = [live.blob for live in await stored_blobs(proposer.engine, height)]
    assert {(row.status, row.assurance, row.is_pruned) for row in rows} == {(BlobStatus.ARCHIVED, VERIFIED, 1)}
    assert proposer.repair.bytes_lost == 0


@pytest.mark.rule("PRU-001")
async def test_where_nobody_has_the_bytes_the_record_is_suspect_and_an_alarm_says_so(joined: Joined) -> None:
    proposer = joined.proposer
    height = await lost_after_pruning(joined)
    with capture_logs() as logs:
        await audit(joined)
    (alarm,) = [each for each in logs if each["event"] == "bytes_lost"]
    assert (alarm["height"], alarm["index"], alarm["log_level"]) == (height, 1, "error")
    rows = [live.blob for live in await stored_blobs(proposer.engine, height)]
    assert [row.status for row in rows].count(BlobStatus.SUSPECT) == 1
    assert {row.is_pruned for row in rows} == {1}
    assert proposer.repair.bytes_lost == 1
    assert proposer.packs == []


@pytest.mark.rule("PRU-001", "ARC-004")
async def test_what_was_lost_is_told_until_an_audit_finds_it_in_the_archive_again(joined: Joined) -> None:
    proposer = joined.proposer
    height = await lost_after_pruning(joined)
    await audit(joined)
    await proposer.engine.wait_tables()
    await proposer.seal(3)  # heights that are pruned leave memory
    state = proposer.engine.undurable_state
    assert archive_progress(state).lost == 1
    await audit(joined)
    assert [fault.number for fault in proposer.control.audit_report.faults] == [1]
    assert proposer.repair.bytes_lost == 1  # the same blob
    (item,) = joined.folder.glob("*.ans104")
    item.rename(proposer.folder / "archived" / "items" / item.name)  # the disk is mounted again
    await audit(joined)
    report = proposer.control.audit_report
    assert (report.faults, report.upgraded, archive_progress(state).lost) == ([], 1, 0)
    rows = [live.blob for live in await stored_blobs(proposer.engine, height)]
    assert {(row.status, row.is_pruned) for row in rows} == {(BlobStatus.ARCHIVED, 1)}
    await proposer.seal(3)
    assert height not in state.blob_heights
