"""POST /upload/private: buckets and their owners, and that nobody else sees what is in them."""

from __future__ import annotations

import pytest
from tests.gateway.running_gateway import Gateway
from tests.gateway.test_upload import signed

PRIVATE = "/upload/private"


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("header", ["bucket_name", "bucket-name", "x-bucket-name", "bucketname"])
async def test_the_bucket_is_named_by_any_of_four_headers(running: Gateway, header: str) -> None:
    answer = await running.upload(b"x", path=PRIVATE, **{header: "mine"})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "success": True,
        "dataitem_id": answer.json()["dataitem_id"],
        "dataitem_name": "",
        "folder_name": "",
        "is_signed": False,
        "message": "file uploaded to private bucket successfully",
    }


@pytest.mark.rule("ARC-004")
async def test_without_a_bucket_it_is_refused(running: Gateway) -> None:
    answer = await running.upload(b"x", path=PRIVATE)
    assert (answer.status_code, answer.json()) == (400, {"error": "missing bucket_name header"})


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_names_are_cleaned_and_the_registry_lists_them_for_the_owner(running: Gateway) -> None:
    id_, raw = signed(b"data", (b"k", b"v"))
    first = await running.upload(
        raw, path=PRIVATE, signed="true", x_bucket_name="mine", x_folder_name="a/b", x_dataitem_name='a/b\\c:*?"<>|()`d'
    )
    assert (first.json()["dataitem_name"], first.json()["folder_name"]) == ("a_b_c__________d", "a/b")
    assert first.json()["is_signed"] is True
    registry = await running.http.get("/registry/mine", headers={"authorization": f"Bearer {running.token}"})
    assert registry.json() == {
        "success": True,
        "bucket_name": "mine",
        "entries": [{"dataitem_id": f"a/b/{id_}.ans104", "dataitem_name": "a_b_c__________d"}],
    }
    admin, other = running.new_token(is_admin=True), running.new_token()
    for token, status in ((admin, 200), (other, 401), ("nonsense", 401)):
        answer = await running.http.get("/registry/mine", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == status
    assert (await running.http.get("/registry/mine")).status_code == 401


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_private_item_does_not_exist_for_anyone_but_its_key(running: Gateway) -> None:
    id_, raw = signed(b"secret", (b"k", b"v"))
    await running.upload(raw, path=PRIVATE, signed="true", x_bucket_name="mine")
    other = running.new_token()
    for path in (f"/resolve/{id_}", f"/binary/{id_}", f"/resolve/fast/{id_}"):
        for headers in ({}, {"authorization": f"Bearer {other}"}, {"authorization": "Bearer nonsense"}):
            answer = await running.http.get(path, headers=headers)
            assert (answer.status_code, answer.json()) == (404, {"error": "dataitem not found"})
        mine = await running.http.get(path, headers={"authorization": f"Bearer {running.token}"})
        assert (mine.status_code, mine.content) == (200, raw if "binary" in path else b"secret")
        assert mine.headers["cache-control"] == "private, no-store"
        assert (await running.http.get(path, params={"token": running.token})).status_code == 200
        assert (await running.http.get(path, params={"token": other})).status_code == 404
    assert (await running.find({"k": "v"})).json()["count"] == 0
    assert (await running.http.post("/query/dataitem", json={"dataitem_id": id_})).status_code == 404
    assert (await running.http.get("/stats")).json()["total_dataitems_count"] == 1


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_bucket_belongs_to_its_first_key(running: Gateway) -> None:
    await running.upload(b"x", path=PRIVATE, x_bucket_name="mine")
    before = await running.stored()
    answer = await running.upload(b"y", path=PRIVATE, x_bucket_name="mine", token=running.new_token())
    assert (answer.status_code, answer.json()) == (500, {"error": "failed to store file: invalid load_acc api key"})
    assert await running.stored() == before


@pytest.mark.rule("ARC-004")
async def test_equal_bytes_in_two_buckets_and_in_public_are_three_items(running: Gateway) -> None:
    other = running.new_token()
    ids = [
        (await running.upload(b"x", path=PRIVATE, x_bucket_name="one")).json()["dataitem_id"],
        (await running.upload(b"x", path=PRIVATE, x_bucket_name="two", token=other)).json()["dataitem_id"],
        (await running.upload(b"x")).json()["dataitem_id"],
    ]
    again = (await running.upload(b"x", path=PRIVATE, x_bucket_name="one")).json()["dataitem_id"]
    assert len(set(ids)) == 3
    assert again == ids[0]
    assert (await running.http.get(f"/resolve/{ids[0]}")).status_code == 404


@pytest.mark.rule("ARC-004")
async def test_a_signed_item_that_is_uploaded_again_in_public_becomes_public(running: Gateway) -> None:
    id_, raw = signed(b"secret", (b"k", b"v"))
    await running.upload(raw, path=PRIVATE, signed="true", x_bucket_name="mine")
    await running.upload(raw, signed="true", token=running.new_token())
    assert (await running.http.get(f"/resolve/{id_}")).status_code == 200
    assert (await running.find({"k": "v"})).json()["count"] == 1


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("bucket", ["..", ".x", "a/b", "a b", "", "x" * 64, "a\\b", "ä", "a%2fb", "'; DROP TABLE x --"])
async def test_a_bucket_cannot_lead_anywhere_else(running: Gateway, bucket: str) -> None:
    headers = {b"x-bucket-name": bucket.encode(), b"authorization": f"Bearer {running.token}".encode()}
    body = b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx\r\n--b--\r\n'
    headers[b"content-type"] = b"multipart/form-data; boundary=b"
    answer = await running.http.post(PRIVATE, content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (400, {"error": "invalid bucket_name header"})
    assert await running.stored() == []


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("folder", ["..", "a/../b", "/a", "a/", "a//b", "a\\b", "x" * 101, ".a", "a/.b", "<script>"])
async def test_a_folder_cannot_lead_anywhere_else(running: Gateway, folder: str) -> None:
    answer = await running.upload(b"x", path=PRIVATE, x_bucket_name="mine", x_folder_name=folder)
    assert (answer.status_code, answer.json()) == (400, {"error": "invalid x-folder-name header"})
    assert await running.stored() == []
