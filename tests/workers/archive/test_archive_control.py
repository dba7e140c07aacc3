"""Audits: what the archive lost is found, archived again from whatever is here, and said where nothing is (PRU-001)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.archive.messages import SIGNED, VERIFIED
from holdfast.core.blob.model import BlobStatus
from holdfast.core.policy import ReadBack
from holdfast.engine.archive_report import ReadBackReport

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    await node.open_with_provider()
    yield node
    await node.kill()


async def audit(node: ArchiveNode, sample: int = 0) -> ReadBackReport:
    report = node.control.begin_audit(sample)
    while not report.is_done:
        await asyncio.sleep(0)
    return report


def damage(node: ArchiveNode) -> None:
    """One item is lost, another one has other bytes."""
    first, second, *_ = sorted((node.folder / "archived" / "items").iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"\1")


async def archived(node: ArchiveNode) -> None:
    await node.resolve(b"a small one", seals=1)
    await node.resolve_public(LARGE, seals=1)
    await node.pack_final()
    await node.archiver.run_once()


@pytest.mark.rule("PRU-001", "ARC-004")
async def test_what_the_archive_lost_is_uploaded_again_while_its_pack_is_here(node: ArchiveNode) -> None:
    await archived(node)
    assert (await audit(node)).faults == []
    damage(node)
    report = await audit(node)
    assert [fault.is_repaired for fault in report.faults] == [True, True]
    assert [live.blob.status for live in node.lives].count(BlobStatus.SUSPECT) == 2
    await node.pruner.run_once()
    assert len(node.packs) > 0  # a suspect record is never enough
    await node.archiver.run_once()
    assert (await audit(node)).faults == []
    assert {live.blob.status for live in node.lives} == {BlobStatus.ARCHIVED}


@pytest.mark.rule("PRU-001", "BLB-001", "BLB-003")
async def test_pruned_blobs_are_packed_again_from_the_outputs_in_them(node: ArchiveNode) -> None:
    await archived(node)
    await node.pruner.run_once()
    assert node.packs == []
    for item in (node.folder / "archived" / "items").iterdir():
        item.unlink()
    report = await audit(node)
    assert [fault.is_repaired for fault in report.faults] == [True] * 5
    report = await audit(node)
    assert (report.checked, report.faults) == (report.total, [])


@pytest.mark.rule("PRU-001")
async def test_bytes_that_nobody_has_are_said_to_be_lost(node: ArchiveNode) -> None:
    await archived(node)
    await node.let_go()
    damage(node)
    report = await audit(node)
    assert [fault.is_repaired for fault in report.faults] == [False, False]


@pytest.mark.rule("ARC-004")
async def test_an_archive_that_is_away_is_no_loss(node: ArchiveNode) -> None:
    await archived(node)
    node.provider.is_away = True
    report = await audit(node)
    assert len(report.faults) == report.total
    assert "is away" in report.faults[0].reason
    assert {live.blob.status for live in node.lives} == {BlobStatus.ARCHIVED}


@pytest.mark.rule("ARC-004")
async def test_a_record_that_was_only_signed_is_verified_by_an_audit(tmp_path: Path) -> None:
    node = ArchiveNode(archive_policy(read_back=ReadBack.NEVER), tmp_path)
    await node.open_with_provider()
    await archived(node)
    assert {live.blob.assurance for live in node.lives} == {SIGNED}
    report = await audit(node)
    assert report.upgraded == report.total == len(node.lives)
    assert {live.blob.assurance for live in node.lives} == {VERIFIED}
    assert (await audit(node, sample=2)).total <= 3
    await node.kill()
