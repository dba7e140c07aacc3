"""The archive provider `load-s3-agent` against our own gateway: one item, read back whole, refusals told apart."""

from __future__ import annotations

import pytest
from tests.gateway.running_gateway import Gateway

from holdfast.adapters.archive.load_s3 import LoadS3Archive
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports.blobs import ItemUpload
from holdfast.wire.ans104 import build_item

DATA = bytes(range(256)) * 512


def item() -> ItemUpload:
    built = build_item(SigningKey.from_seed(bytes(32)), [(b"height", b"7"), (b"load.height", b"7")], DATA)
    assert not isinstance(built, Refused)
    return ItemUpload(built[0], built[1], "1337/7/0")


@pytest.mark.rule("ARC-002", "ARC-004")
async def test_an_item_is_stored_once_under_the_id_that_was_known_and_read_back(running: Gateway) -> None:
    provider = LoadS3Archive(str(running.http.base_url), running.token)
    upload = item()
    for _ in range(2):
        assert await provider.store(upload) is None
    assert provider.locator_of(upload.id) == f"load-s3://{upload.id}"
    for locator in (provider.locator_of(upload.id), upload.id, f"{running.http.base_url}/resolve/{upload.id}"):
        assert await provider.fetch(locator) == DATA
    assert (await running.store.index.totals())[0] == 1


@pytest.mark.rule("ARC-003", "ARC-004")
async def test_a_refused_key_is_a_refusal_and_everything_else_is_tried_again(running: Gateway) -> None:
    url = str(running.http.base_url)
    refused = await LoadS3Archive(url, "no such key").store(item())
    assert isinstance(refused, Refused)
    assert refused.rule == "ARC-003"
    damaged = item()._replace(raw=item().raw[:-1] + b"\1")
    with pytest.raises(Unavailable, match="status 500"):
        await LoadS3Archive(url, running.token).store(damaged)
    with pytest.raises(Unavailable, match="ARC-003"):
        await LoadS3Archive("http://127.0.0.1:1", running.token).store(item())
    assert await LoadS3Archive(url, running.token).fetch("load-s3://" + "A" * 43) is None


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_private_upload_is_read_with_our_key_alone(running: Gateway) -> None:
    url, upload = str(running.http.base_url), item()
    mine = LoadS3Archive(url, running.token, bucket="mine")
    for _ in range(2):
        assert await mine.store(upload) is None
    assert await mine.fetch(mine.locator_of(upload.id)) == DATA
    assert await LoadS3Archive(url, running.token).fetch(upload.id) is None  # without the key
    assert isinstance(await LoadS3Archive(url, running.new_token(), bucket="mine").store(upload), Refused)


@pytest.mark.rule("ARC-002")
async def test_a_raw_upload_is_found_again_by_its_tags(running: Gateway) -> None:
    provider = LoadS3Archive(str(running.http.base_url), running.token, is_raw=True)
    tags = ((b"content_type", b"x"), (b"height", b"7"), (b"blob_index", b"0"), (b"versioned_hash", b"0x0142"))
    upload = ItemUpload("", b"", "1337/7/0", DATA, tags)
    first = await provider.store(upload)
    assert isinstance(first, str)
    assert await provider.fetch(first) == DATA
    assert await provider.store(upload._replace(is_retry=True)) == first
    assert (await running.store.index.totals())[0] == 1
