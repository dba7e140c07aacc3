"""Resumable uploads: what arrived is kept over broken connections and restarts, and only its key can touch it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.gateway.running_gateway import Gateway, gateway
from tests.gateway.test_upload import signed


def auth(running: Gateway, **more: str) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return {"authorization": f"Bearer {running.token}", **named}


async def begin(running: Gateway, **asked: object) -> str:
    answer = await running.http.post("/uploads", json=asked, headers=auth(running))
    assert (answer.status_code, answer.headers["upload-offset"]) == (201, "0")
    return str(answer.json()["upload_id"])


async def append(running: Gateway, id_: str, offset: int, data: bytes) -> httpx.Response:
    headers = auth(running, upload_offset=str(offset))
    return await running.http.patch(f"/uploads/{id_}", content=data, headers=headers)


async def offset(running: Gateway, id_: str) -> int:
    answer = await running.http.head(f"/uploads/{id_}", headers=auth(running))
    assert answer.status_code == 204
    return int(answer.headers["upload-offset"])


@pytest.mark.rule("ARC-004")
async def test_an_upload_in_pieces_over_a_restart_is_the_item_that_one_request_would_have_made(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    async with gateway(tmp_path) as running:
        tags = [{"key": "k", "value": "v"}]
        id_ = await begin(running, content_type="a/b", tags=tags)
        assert (await append(running, id_, 0, data[:1_000_000])).headers["upload-offset"] == "1000000"
        assert (await append(running, id_, 1_000_000, data[1_000_000:1_500_000])).status_code == 204
    async with gateway(tmp_path, token=running.token) as running:
        at = await offset(running, id_)
        assert at == 1_500_000
        await append(running, id_, at, data[at:])
        answer = await running.http.post(f"/uploads/{id_}/finish", headers=auth(running))
        whole = await running.upload(data, content_type="a/b", tags=tags)
        assert answer.json() == whole.json()
        assert (await running.http.get(f"/resolve/{answer.json()['dataitem_id']}")).content == data
        assert running.spooled() == []
        assert (await running.http.head(f"/uploads/{id_}", headers=auth(running))).status_code == 404


@pytest.mark.rule("ARC-004")
async def test_signed_and_private_items_are_resumable_too(running: Gateway) -> None:
    item, raw = signed(b"y" * 500_000, (b"k", b"v"))
    id_ = await begin(running, signed=True, bucket_name="mine", folder_name="f", dataitem_name="n")
    for at in range(0, len(raw), 200_000):
        await append(running, id_, at, raw[at : at + 200_000])
    answer = (await running.http.post(f"/uploads/{id_}/finish", headers=auth(running))).json()
    assert (answer["dataitem_id"], answer["folder_name"], answer["is_signed"]) == (item, "f", True)
    assert (await running.http.get(f"/resolve/{item}")).status_code == 404
    bad = await begin(running, signed=True)
    await append(running, bad, 0, raw[:-1] + b"X")
    refused = await running.http.post(f"/uploads/{bad}/finish", headers=auth(running))
    assert refused.status_code == 500


@pytest.mark.rule("ARC-004")
async def test_what_arrived_before_a_broken_connection_counts(running: Gateway) -> None:
    id_ = await begin(running)

    async def broken() -> AsyncIterator[bytes]:
        yield b"a" * 100_000
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await running.http.patch(f"/uploads/{id_}", content=broken(), headers=auth(running, upload_offset="0"))
    for _ in range(200):  # the server notices after the client
        if (at := await offset(running, id_)) == 100_000 and id_ not in running.server._resumable._in_use:
            break
    assert at == 100_000
    assert (await append(running, id_, at, b"b")).headers["upload-offset"] == "100001"


@pytest.mark.rule("ARC-004")
async def test_what_is_acknowledged_was_synced(running: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("holdfast.gateway.resumable.sync_data", lambda file: synced.append(os.fstat(file).st_size))
    id_ = await begin(running)
    await append(running, id_, 0, b"abc")
    await append(running, id_, 3, b"def")
    assert synced == [3, 6]


@pytest.mark.rule("ARC-004")
async def test_a_wrong_offset_is_refused_with_the_right_one(running: Gateway) -> None:
    id_ = await begin(running)
    await append(running, id_, 0, b"abc")
    for wrong in (0, 2, 4, 10**15):
        answer = await append(running, id_, wrong, b"xyz")
        assert (answer.status_code, answer.headers["upload-offset"]) == (409, "3")
    assert (await running.http.patch(f"/uploads/{id_}", content=b"x", headers=auth(running))).status_code == 400
    assert await offset(running, id_) == 3


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_beginning_that_is_no_json_or_too_deep_is_refused_and_leaves_nothing(running: Gateway) -> None:
    for body in (b"{", b'{"x":' + b"[" * 100_000, b'{"tags":"a"}', b'{"content_type":"\xff"}'):
        headers = {**auth(running), "content-type": "application/json"}
        answer = await running.http.post("/uploads", content=body, headers=headers)
        assert answer.status_code == 422, body[:20]
    assert running.spooled() == []


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_another_key_and_other_names_find_nothing(running: Gateway) -> None:
    id_ = await begin(running)
    other = {"authorization": f"Bearer {running.new_token()}"}
    for path in (f"/uploads/{id_}", "/uploads/..%2fkeys", "/uploads/" + "0" * 32):
        headers = other if id_ in path else auth(running)
        assert (await running.http.head(path, headers=headers)).status_code == 404
        assert (await running.http.delete(path, headers=headers)).status_code == 404
        assert (await running.http.post(f"{path}/finish", headers=headers)).status_code == 404
    assert (await running.http.head(f"/uploads/{id_}")).status_code == 401
    assert (await running.http.delete(f"/uploads/{id_}", headers=auth(running))).status_code == 204
    assert running.spooled() == []


@pytest.mark.rule("SEC-001")
async def test_sizes_and_numbers_are_limited_and_old_uploads_are_removed(tmp_path: Path) -> None:
    async with gateway(tmp_path, object_bytes_max=2_000, uploads_open_max=2, upload_open_ms=1) as running:
        id_ = await begin(running)
        assert (await append(running, id_, 0, b"x" * 1_500)).status_code == 204
        assert (await append(running, id_, 1_500, b"x" * 501)).status_code == 413
        await begin(running)
        third = await running.http.post("/uploads", json={}, headers=auth(running))
        assert third.status_code == 429
        for path in (tmp_path / "uploads").glob("*.part"):
            os.utime(path, (1, 1))
        assert await running.server._resumable.expire() == 2
        assert running.spooled() == []
