"""A bucket behind a bad line, and as an archive: written once, whole or absent, refused credentials told apart."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.adapters.objects.faulty_line import FaultyLine, faulty_line
from tests.seaweedfs.server import SeaweedServer
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.adapters.archive.object_archive import ObjectArchive
from holdfast.adapters.objects.remote_store import CONDITIONAL_MAX, RemoteObjects
from holdfast.core.base.errors import AccessDenied, Unavailable
from holdfast.core.blob.model import BlobStatus

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def line(seaweedfs: SeaweedServer) -> AsyncIterator[FaultyLine]:
    async with faulty_line(seaweedfs.endpoint) as made:
        yield made


@pytest.fixture
def through(line: FaultyLine, seaweedfs: SeaweedServer) -> Callable[[int], RemoteObjects]:
    bucket = seaweedfs.bucket()

    def make(retries: int) -> RemoteObjects:
        return RemoteObjects(bucket, endpoint=line.endpoint, config=seaweedfs.config, retries=retries, timeout_s=10)

    return make


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("fault", ["cut_requests", "cut_answers", "status_503"])
async def test_a_put_that_failed_is_whole_or_absent_and_can_be_repeated(
    line: FaultyLine, through: Callable[[int], RemoteObjects], fault: str
) -> None:
    objects = through(0)
    assert await objects.put_once("first", b"x") is True
    setattr(line, fault, 1)
    with pytest.raises(Unavailable):
        await objects.put_once("k", LARGE)
    assert await objects.read("k") in (None, LARGE)
    await objects.put_once("k", LARGE)
    assert await objects.put_once("k", b"another") is False
    assert (await objects.read("k"), line.faults) == (LARGE, 1)


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("fault", ["cut_requests", "cut_answers", "cut_bodies", "status_503"])
async def test_reads_and_listings_are_right_or_fail(
    line: FaultyLine, through: Callable[[int], RemoteObjects], fault: str
) -> None:
    objects, patient = through(0), through(3)
    for name in ("n/a", "n/b"):
        await objects.put_once(name, LARGE)
    for start, length in ((0, None), (10, 50_000)):
        setattr(line, fault, 1)
        with pytest.raises(Unavailable):
            await objects.read("n/a", start, length)
    setattr(line, fault, 1)
    with pytest.raises(Unavailable):
        [each async for each in objects.list("n")]
    setattr(line, fault, 1)
    assert await patient.read("n/a") == LARGE  # tried again by itself
    assert await objects.size("n/missing") is None


@pytest.mark.rule("ARC-004")
async def test_a_large_object_comes_in_parts_and_a_broken_line_leaves_none_of_it(
    line: FaultyLine, through: Callable[[int], RemoteObjects], tmp_path: Path
) -> None:
    objects, file = through(0), tmp_path / "large"
    file.write_bytes(os.urandom(1 << 20) * (CONDITIONAL_MAX // (1 << 20) + 2))
    await objects.put_once("first", b"")
    line.cut_answers = 2  # looking for it, then a part
    with pytest.raises(Unavailable):
        await objects.put_once("big", file)
    line.cut_answers = 0
    assert await objects.size("big") is None
    assert await objects.put_once("big", file) is True
    assert await objects.put_once("big", file) is False
    assert await objects.read("big") == file.read_bytes()


@pytest.mark.rule("ARC-003", "SEC-001")
async def test_refused_credentials_stall_an_upload_at_once(seaweedfs: SeaweedServer, tmp_path: Path) -> None:
    bucket = seaweedfs.bucket()
    await RemoteObjects(bucket, endpoint=seaweedfs.endpoint, config=seaweedfs.config).put_once("a", b"")
    wrong = RemoteObjects(
        bucket, endpoint=seaweedfs.endpoint, config={"access_key_id": "nobody", "secret_access_key": "hush-hush"}
    )
    with pytest.raises(AccessDenied) as caught:
        await wrong.put_once("b", b"")
    assert "hush-hush" not in str(caught.value)
    node = ArchiveNode(archive_policy(), tmp_path)
    node.provider = ObjectArchive(wrong, "s3", bucket)  # type: ignore[assignment]
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    await node.archiver.run_once()
    assert node.lives[0].blob.attempts == node.engine.policy.archive.attempts_max
    assert "refuses our credentials" in node.lives[0].blob.reason
    await node.kill()


@pytest.mark.rule("ARC-001", "ARC-002", "ARC-004", "PRU-001")
async def test_a_bucket_behind_a_bad_line_gets_every_blob_once(
    line: FaultyLine, through: Callable[[int], RemoteObjects], tmp_path: Path
) -> None:
    node = ArchiveNode(archive_policy(), tmp_path)
    objects = through(0)
    node.provider = ObjectArchive(objects, "s3", "s3://bucket")  # type: ignore[assignment]
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    for fault in ("cut_requests", "cut_answers", "cut_bodies", "status_503", ""):
        if fault:
            setattr(line, fault, 2)
        node.clock.monotonic += 600_000
        await node.archiver.run_once()
        await node.pruner.run_once()
        is_archived = all(live.blob.status is BlobStatus.ARCHIVED for live in node.lives)
        assert (node.packs == []) == is_archived
    for name in ("cut_requests", "cut_answers", "cut_bodies", "status_503"):
        setattr(line, name, 0)
    node.clock.monotonic += 600_000
    await node.archiver.run_once()
    await node.pruner.run_once()
    assert node.packs == []
    items = [each.key async for each in objects.list("items")]
    assert sorted(items) == sorted(f"items/{live.blob.item_id}.ans104" for live in node.lives)
    await node.kill()
