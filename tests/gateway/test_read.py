"""/resolve and /binary: ranges with the right total, and that no damaged byte is ever served."""

from __future__ import annotations

import os

import httpx
import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import Gateway
from tests.gateway.test_upload import signed

from holdfast.gateway.records import CHUNK_BYTES, data_key, item_key

MIB = 1 << 20


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("size", [1, 1000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7])
async def test_every_range_is_served_with_the_right_total(running: Gateway, size: int) -> None:
    data = os.urandom(size)
    id_, raw = signed(data, (b"k", b"v"))
    await running.upload(raw, signed="true")
    for path, whole in ((f"/resolve/{id_}", data), (f"/binary/{id_}", raw)):
        total = len(whole)
        assert (await running.http.get(path)).content == whole
        chosen = (0, 1, total // 2, total - 1, CHUNK_BYTES, CHUNK_BYTES + 1)
        edges = sorted({edge for edge in chosen if edge < total})
        for start in edges:
            for end in (edge for edge in edges if edge >= start):
                answer = await running.http.get(path, headers={"range": f"bytes={start}-{end}"})
                assert (answer.status_code, answer.content) == (206, whole[start : end + 1])
                assert answer.headers["content-range"] == f"bytes {start}-{end}/{total}"


@pytest.mark.rule("ARC-004")
async def test_open_and_suffix_ranges_and_those_that_are_none(running: Gateway) -> None:
    data = bytes(range(100))
    id_ = (await running.upload(data)).json()["dataitem_id"]
    for wanted, part in (
        ("bytes=90-", data[90:]),
        ("bytes=-5", data[-5:]),
        ("bytes=-500", data),
        ("bytes=50-9999", data[50:]),
    ):
        for answer in (
            await running.http.get(f"/resolve/{id_}", headers={"range": wanted}),
            await running.http.get(f"/resolve/{id_}", params={"range": wanted}),
            await running.http.get(f"/resolve/{id_}", params={"range": wanted.removeprefix("bytes=")}),
        ):
            assert (answer.status_code, answer.content) == (206, part)
    for wanted in ("bytes=100-", "bytes=5-4", "bytes=-0", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4"):
        answer = await running.http.get(f"/resolve/{id_}", headers={"range": wanted})
        assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */100")


@pytest.mark.rule("ARC-004")
async def test_heads_and_etags(running: Gateway) -> None:
    id_ = (await running.upload(b"hello")).json()["dataitem_id"]
    head = await running.http.head(f"/resolve/{id_}")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "5")
    assert head.headers["accept-ranges"] == "bytes"
    assert head.headers["content-security-policy"] == "sandbox"
    again = await running.http.get(f"/resolve/{id_}", headers={"if-none-match": head.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    "id_", ["x", "A" * 43, "..%2f..%2fkeys.json", "%00" * 43, "L4J7z72Ws21BdwRewFM9Cpb-t1m3qS5e_Ht8onMxL6J"]
)
async def test_what_is_no_item_is_not_found(running: Gateway, id_: str) -> None:
    for path in ("/resolve", "/binary", "/resolve/fast", "/provenance"):
        assert (await running.http.get(f"{path}/{id_}")).status_code == 404


@pytest.mark.rule("ARC-004")
async def test_a_damaged_item_is_refused_and_its_whole_parts_are_served(
    running: Gateway, objects: SimulatedObjects
) -> None:
    data = os.urandom(2 * MIB)
    id_ = (await running.upload(data)).json()["dataitem_id"]
    objects.damage(data_key(id_), MIB + 5)
    whole = await running.http.get(f"/resolve/{id_}", headers={"range": f"bytes=0-{MIB - 1}"})
    assert whole.content == data[:MIB]
    damaged = await running.http.get(f"/resolve/{id_}", headers={"range": f"bytes={MIB + 100}-{MIB + 200}"})
    assert (damaged.status_code, damaged.json()) == (500, {"error": "the stored dataitem cannot be read"})
    with pytest.raises(httpx.RemoteProtocolError):  # what was promised does not arrive
        await running.http.get(f"/resolve/{id_}")
    assert running.server.metrics.faults["integrity"] == 2


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("cut", [0, 10, -1])
async def test_a_record_that_is_damaged_is_never_believed(
    running: Gateway, objects: SimulatedObjects, cut: int
) -> None:
    id_ = (await running.upload(b"hello")).json()["dataitem_id"]
    key = item_key(id_)
    objects.damage(key, cut) if cut >= 0 else objects.stored.update({key: objects.stored[key][:-5]})
    assert (await running.http.get(f"/resolve/{id_}")).status_code == 500


@pytest.mark.rule("ARC-004")
async def test_data_that_is_missing_is_500_and_not_empty(running: Gateway, objects: SimulatedObjects) -> None:
    id_ = (await running.upload(b"hello")).json()["dataitem_id"]
    del objects.stored[data_key(id_)]
    assert (await running.http.get(f"/resolve/{id_}")).status_code == 500


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("what", ["damaged", "missing", "record"])
async def test_uploading_an_item_again_repairs_it(running: Gateway, objects: SimulatedObjects, what: str) -> None:
    data = os.urandom(MIB + 1)
    id_ = (await running.upload(data)).json()["dataitem_id"]
    if what == "damaged":
        objects.damage(data_key(id_), 7)
    elif what == "missing":
        del objects.stored[data_key(id_)]
    else:
        objects.damage(item_key(id_), 7)
    assert (await running.upload(data)).json()["dataitem_id"] == id_
    assert (await running.http.get(f"/resolve/{id_}")).content == data


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    "value", [b"text/html\r\nset-cookie: x=1", b"\xff\xfe", b"text/\0html", b"x" * 300, "tëxt/plain".encode()]
)
async def test_a_content_type_cannot_inject_a_header(running: Gateway, value: bytes) -> None:
    id_, raw = signed(b"x", (b"Content-Type", value))
    assert (await running.upload(raw, signed="true")).status_code == 200
    answer = await running.http.get(f"/resolve/{id_}")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "set-cookie" not in answer.headers
