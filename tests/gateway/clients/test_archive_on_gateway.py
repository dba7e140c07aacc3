"""The archive's own tests, with our gateway as the archive: over a folder, and over SeaweedFS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.adapters.objects.test_objects import make
from tests.gateway.running_gateway import Gateway, gateway
from tests.workers.archive.archive_node import ArchiveNode, archive_policy
from tests.workers.archive.test_archiver import (
    LARGE,
    blobs,
    test_an_archive_that_lies_is_found_out_before_anything_counts,
    test_receipts_of_a_height_are_recorded_in_their_order,
)
from tests.workers.archive.test_blob_pruner import (
    test_archived_bytes_leave_the_node_and_come_back_from_the_archive,
    test_one_unarchived_blob_keeps_its_whole_height,
)

from holdfast.adapters.archive.load_s3 import LoadS3Archive
from holdfast.core.archive.messages import VERIFIED
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest
from holdfast.core.blob.model import BlobStatus
from holdfast.wire.ans104 import parse_header

__all__ = [
    "test_an_archive_that_lies_is_found_out_before_anything_counts",
    "test_archived_bytes_leave_the_node_and_come_back_from_the_archive",
    "test_one_unarchived_blob_keeps_its_whole_height",
    "test_receipts_of_a_height_are_recorded_in_their_order",
]


@pytest.fixture(params=["local", "seaweedfs"])
async def archive(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    objects = make(request.param, tmp_path, request)
    await objects.put_once("other/object", b"")  # SeaweedFS has a bucket from its first object on
    async with gateway(tmp_path / "gateway", objects) as opened:
        yield opened


@pytest.fixture
async def node(archive: Gateway, tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    """A node whose faulty archive has a gateway behind it."""
    node = ArchiveNode(archive_policy(), tmp_path)
    behind = LoadS3Archive(archive.server.url, archive.token)
    node.provider._archive = behind  # type: ignore[assignment]
    node.provider.id, node.provider.locator_of = behind.id, behind.locator_of
    await node.open_with_provider()
    yield node
    await node.kill()


@pytest.mark.rule("ARC-001", "ARC-002", "ARC-004", "NTC-004")
async def test_blobs_are_signed_items_of_the_gateway_found_by_their_tags_and_stored_once(
    node: ArchiveNode, archive: Gateway
) -> None:
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    node.provider.faults_after = 1  # the answer to one upload is lost: it is sent again
    for _ in range(2):
        await node.archiver.run_once()
        node.clock.monotonic += 10_000
    assert {(blob.status, blob.assurance) for blob in blobs(node)} == {(BlobStatus.ARCHIVED, VERIFIED)}
    assert (await archive.store.index.totals())[0] == len(blobs(node)) == 4
    for live in node.lives:
        blob = live.blob
        raw = (await archive.http.get(f"/binary/{blob.item_id}")).content
        header = parse_header(raw)
        assert not isinstance(header, Refused)
        assert (header.id, header.owner) == (blob.item_id, node.signer.public)
        assert raw.endswith(await node.raw_blob(live))
        tags = {"load.height": str(blob.height), "load.blob_index": str(blob.number)}
        found = (await archive.find(tags)).json()["items"]
        assert [item["dataitem_id"] for item in found] == [blob.item_id]
        place = f"{node.engine.policy.chain_id}/{blob.height}/{blob.number}"
        assert await node.provider.find(place, blob.versioned_hash) == [blob.locator]  # NTC-004: what a follower asks
        assert await node.provider.find(place, Digest(bytes(32))) == []
