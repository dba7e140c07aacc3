"""The provider `load-s3-agent` against a server with the quirks of real ones: one item whatever happens (ARC-002)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.adapters.archive.scripted_agent import ScriptedAgent, scripted_agent
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.adapters.archive.load_s3 import LoadS3Archive
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.blob.model import BlobStatus
from holdfast.ports.blobs import ItemUpload

LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def agent() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as made:
        yield made


async def packed_node(tmp_path: Path, provider: LoadS3Archive) -> ArchiveNode:
    node = ArchiveNode(archive_policy(), tmp_path)
    node.provider = provider  # type: ignore[assignment]
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    return node


def raw_item(is_retry: bool = False) -> ItemUpload:
    tags = ((b"content_type", b"x"), (b"height", b"7"), (b"blob_index", b"0"), (b"versioned_hash", b"0x01"))
    return ItemUpload("", b"", "1/7/0", b"data", tags, is_retry)


@pytest.mark.rule("ARC-002", "ARC-003", "ARC-004")
@pytest.mark.parametrize("is_raw", [False, True])
async def test_a_stored_upload_without_an_answer_makes_no_second_item(
    agent: ScriptedAgent, tmp_path: Path, is_raw: bool
) -> None:
    node = await packed_node(tmp_path, LoadS3Archive(agent.url, "key", is_raw=is_raw))
    agent.script = ["drop", "drop", "drop", "drop"]
    await node.archiver.run_once()
    assert len(agent.items) == 4
    assert {live.blob.status for live in node.lives} == {BlobStatus.PENDING}
    for _ in range(4):  # one fault of a height at a time is recorded, and waits
        node.clock.monotonic += 10_000
        await node.archiver.run_once()
    assert {live.blob.status for live in node.lives} == {BlobStatus.ARCHIVED}
    assert len(agent.items) == 4
    assert [live.blob.locator for live in node.lives] == [
        f"load-s3://{id_}" for id_ in sorted(agent.items, key=lambda id_: _index(node, agent, id_))
    ]
    assert (agent.queries > 0) == is_raw
    await node.kill()


def _index(node: ArchiveNode, agent: ScriptedAgent, id_: str) -> int:
    return next(live.blob.number for live in node.lives if live.blob.locator.endswith(id_))


@pytest.mark.rule("ARC-002")
async def test_a_tag_query_is_believed_only_where_the_data_are_ours(agent: ScriptedAgent) -> None:
    provider = LoadS3Archive(agent.url, "key", is_raw=True)
    first = await provider.store(raw_item())
    assert agent.queries == 0  # nothing to look for yet
    assert await provider.store(raw_item(is_retry=True)) == first
    assert len(agent.items) == 1
    forged = next(iter(agent.items))
    agent.items[forged] = agent.items[forged][:-1] + b"X"
    second = await provider.store(raw_item(is_retry=True))
    assert second != first
    assert len(agent.items) == 2


@pytest.mark.rule("ARC-003")
async def test_private_uploads_name_their_bucket_and_a_wrong_key_is_a_refusal(agent: ScriptedAgent) -> None:
    provider = LoadS3Archive(agent.url, "secret", bucket="mine")
    agent.script = [(500, b'{"error":"failed to store file: invalid load_acc api key"}')]
    refused = await provider.store(raw_item())
    assert isinstance(refused, Refused)
    assert agent.uploads[0]["x-bucket-name"] == "mine"
    assert agent.uploads[0]["authorization"] == "Bearer secret"
    for status in (401, 403):
        agent.script = [(status, b'{"error":"invalid API key"}')]
        assert isinstance(await provider.store(raw_item()), Refused)


@pytest.mark.rule("ARC-003")
@pytest.mark.parametrize(
    "answer",
    [
        *("cut", (500, b'{"error":"failed to store file: disk"}'), (502, b"<html>"), (413, b"length limit exceeded")),
        *((200, b""), (200, b"not JSON"), (200, b'{"success":true}'), (200, b'{"dataitem_id":7}')),
        *((200, b'{"dataitem_id":"another"}'), (301, b"")),
    ],
)
async def test_what_is_not_a_receipt_is_tried_again(agent: ScriptedAgent, tmp_path: Path, answer: object) -> None:
    node = await packed_node(tmp_path, LoadS3Archive(agent.url, "key", timeout_s=5))
    agent.script = [answer] * 4  # type: ignore[list-item]
    await node.archiver.run_once()
    blob = node.lives[0].blob
    assert (blob.status, blob.attempts) == (BlobStatus.PENDING, 1)
    node.clock.monotonic += 10_000
    await node.archiver.run_once()
    assert {live.blob.status for live in node.lives} == {BlobStatus.ARCHIVED}
    await node.kill()


@pytest.mark.rule("ARC-003")
async def test_a_refused_key_stalls_at_once(agent: ScriptedAgent, tmp_path: Path) -> None:
    node = await packed_node(tmp_path, LoadS3Archive(agent.url, "key"))
    agent.script = [(401, b'{"error":"invalid API key"}')] * 4
    await node.archiver.run_once()
    assert node.lives[0].blob.attempts == node.engine.policy.archive.attempts_max
    assert "invalid API key" in node.lives[0].blob.reason
    node.clock.monotonic += 10_000
    await node.archiver.run_once()
    assert len(agent.uploads) == 4  # nothing is tried before the hour is over
    await node.kill()


@pytest.mark.rule("ARC-004")
async def test_a_gateway_that_fails_or_shows_no_item_is_told_apart_from_one_that_has_none(agent: ScriptedAgent) -> None:
    provider = LoadS3Archive(agent.url, "key")
    assert await provider.fetch("load-s3://" + "A" * 43) is None
    agent.items["A" * 43] = b"no item at all"
    assert await provider.fetch("A" * 43) is None
    with pytest.raises(Unavailable, match="ARC-003"):
        await LoadS3Archive("http://127.0.0.1:1", "key").fetch("A" * 43)
