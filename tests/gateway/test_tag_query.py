"""POST /tags/query and /query/dataitem: filters, pages, cursors, the newer members, and their errors."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from tests.gateway.running_gateway import Gateway
from tests.gateway.test_upload import KEY, signed

from holdfast.wire.ans104 import base64url


async def upload_many(running: Gateway, count: int, **tags: str) -> list[str]:
    """Ids, oldest first."""
    sent = [{"key": key, "value": value} for key, value in tags.items()]
    answers = [await running.upload(b"%d" % number, tags=sent) for number in range(count)]
    return [answer.json()["dataitem_id"] for answer in answers]


def ids(page: dict[str, Any]) -> list[str]:
    return [item["dataitem_id"] for item in page["items"]]


@pytest.mark.rule("ARC-004")
async def test_pages_are_followed_by_their_cursors_and_miss_nothing(running: Gateway) -> None:
    uploaded = await upload_many(running, 7, kind="x")
    seen: list[str] = []
    cursor = None
    for number in range(3):
        page = (await running.find({"kind": "x"}, first=3, after=cursor)).json()
        assert (page["success"], page["count"], page["total_count"]) == (True, len(page["items"]), 7)
        seen += ids(page)
        cursor = page["page_info"]["next_cursor"]
        assert page["page_info"]["has_next_page"] is (number < 2) is (cursor is not None)
    created = {each["dataitem_id"]: each["created_at"] for each in (await running.find({"kind": "x"})).json()["items"]}
    assert seen == sorted(uploaded, key=lambda id_: (created[id_], id_), reverse=True)


@pytest.mark.rule("ARC-004")
async def test_an_item_has_the_agents_members_and_a_cursor_is_what_the_agent_writes(running: Gateway) -> None:
    await upload_many(running, 2, kind="x")
    page = (await running.find({"kind": "x"}, first=1)).json()
    item = page["items"][0]
    assert set(item) == {"dataitem_id", "content_type", "created_at", "dataitem_size"}
    assert item["content_type"] == "text/plain"
    assert len(item["created_at"]) == len("2025-11-06T11:16:49.123+00:00")
    assert item["created_at"].endswith("+00:00")
    cursor = page["page_info"]["next_cursor"]
    assert "=" not in cursor
    assert json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4))) == {
        "created_at": item["created_at"],
        "dataitem_id": item["dataitem_id"],
    }


@pytest.mark.rule("ARC-004")
async def test_filters_are_anded_trimmed_exact_and_case_sensitive(running: Gateway) -> None:
    await running.upload(b"1", tags=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
    await running.upload(b"2", tags=[{"key": "a", "value": "1"}])
    for tags, count in (
        ({"a": "1"}, 2),
        ({" a ": " 1 "}, 2),
        ({"a": "1", "b": "2"}, 1),
        ({"a": "1", "b": "3"}, 0),
        ({"A": "1"}, 0),
        ({"a": "11"}, 0),
        ({"Storage-Provider": "Load-S3"}, 2),
        ({"": "1"}, 0),
        ({"a": ""}, 0),
        ({"a' OR '1'='1": "1"}, 0),
        ({"a": "1' --"}, 0),
        ({"a\\": "1"}, 0),
    ):
        assert (await running.find(tags)).json()["count"] == count, tags
    twice = [{"key": "a", "value": "1"}, {"key": "a", "value": "1"}]
    assert (await running.http.post("/tags/query", json={"filters": twice})).json()["count"] == 0


@pytest.mark.rule("ARC-004")
async def test_newer_members_narrow_and_widen_the_answer(running: Gateway) -> None:
    id_, raw = signed(b"x", (b"k", b"v"), (b"\xff", b"\xfe"))
    await running.upload(raw, signed="true")
    (other,) = await upload_many(running, 1, k="v")
    owner = base64url(hashlib.sha256(KEY.public).digest())
    full = (await running.find({"k": "v"}, full_metadata=True, owner=owner)).json()["items"]
    assert [item["dataitem_id"] for item in full] == [id_]
    assert full[0]["tags"] == [{"key": "k", "value": "v"}, {"key": "\ufffd", "value": "\ufffd"}]
    assert (full[0]["owner"], full[0]["dataitem_size"]) == (owner, len(raw))
    assert ids((await running.http.post("/tags/query", json={"filters": [], "owner": owner})).json()) == [id_]
    created = {item["dataitem_id"]: item["created_at"] for item in (await running.find({"k": "v"})).json()["items"]}
    page = await running.find({"k": "v"}, created_after=created[other], created_before=created[other])
    assert other in ids(page.json())
    assert ids((await running.find({"k": "v"}, created_after="2100-01-01T00:00:00Z")).json()) == []
    assert ids((await running.find({"k": "v"}, owner="'; --")).json()) == []
    assert ids((await running.find({"k": "v"}, target="\0")).json()) == []


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"filters": []}, "filters array must not be empty"),
        ({"filters": [{"key": "a", "value": "b"}], "first": 0}, "first must be greater than 0"),
        ({"filters": [{"key": "a", "value": "b"}], "first": -1}, "first must be greater than 0"),
        ({"filters": [{"key": "a", "value": "b"}], "first": 101}, "first must not exceed 100"),
        ({"filters": [{"key": "a", "value": "b"}] * 33}, "filters must not exceed 32"),
        ({"filters": [{"key": "a", "value": "b"}], "after": "*"}, "invalid cursor: invalid pagination cursor encoding"),
        (
            {"filters": [{"key": "a", "value": "b"}], "after": "e30"},
            "invalid cursor: invalid pagination cursor payload",
        ),
        (
            {
                "filters": [{"key": "a", "value": "b"}],
                "after": base64.b64encode(b'{"created_at":"x","dataitem_id":"y"}').decode().rstrip("="),
            },
            "invalid cursor: invalid pagination cursor timestamp",
        ),
        (
            {
                "filters": [{"key": "a", "value": "b"}],
                "after": base64.b64encode(b'{"x":' + b"[" * 9_000).decode().rstrip("="),
            },
            "invalid cursor: invalid pagination cursor payload",
        ),
        ({"filters": [{"key": "a", "value": "b"}], "created_after": "now"}, "invalid created_after, expected RFC3339"),
    ],
)
async def test_bad_queries_are_answered_in_the_agents_words(running: Gateway, body: object, says: str) -> None:
    answer = await running.http.post("/tags/query", json=body)
    assert (answer.status_code, answer.json()) == (400, {"error": says})


@pytest.mark.rule("ARC-004")
async def test_bodies_that_are_no_query_get_what_axum_answers(running: Gateway) -> None:
    for content, kind, status in (
        (b"{}", "text/plain", 415),
        (b"{", "application/json", 400),
        (b'{"filters": 1}', "application/json", 422),
        (b'{"filters": [{"key": "a"}]}', "application/json", 422),
        (b'{"filters": [{"key": "a", "value": null}]}', "application/json", 422),
        (b'{"x":' + b"[" * 100_000, "application/json", 400),
        (b'{"filters": [{"key": "\xff", "value": "a"}]}', "application/json", 400),
        (b" " * (2 << 20), "application/json", 413),
    ):
        answer = await running.http.post("/tags/query", content=content, headers={"content-type": kind})
        assert answer.status_code == status, content[:40]


@pytest.mark.rule("ARC-004")
async def test_one_item_is_described_in_full(running: Gateway) -> None:
    id_, raw = signed(b"data", (b"Content-Type", b"a/b"), (b"k", b"v"))
    await running.upload(raw, signed="true")
    answer = (await running.http.post("/query/dataitem", json={"dataitem_id": id_})).json()
    assert answer["dataitem_id"] == id_
    assert (answer["content_type"], answer["dataitem_size"], answer["data_size"]) == ("a/b", len(raw), 4)
    assert answer["tags"][1] == {"key": "k", "value": "v"}
    for unknown in (id_[:-1] + ("A" if id_[-1] != "A" else "E"), "../../etc/passwd", ""):
        missing = await running.http.post("/query/dataitem", json={"dataitem_id": unknown})
        assert (missing.status_code, missing.json()) == (404, {"error": "dataitem not found"})


@pytest.mark.rule("ARC-004")
async def test_the_agents_facts(running: Gateway) -> None:
    info = (await running.http.get("/")).json()
    assert (
        info.items()
        >= {
            "status": "running",
            "name": "load-s3-agent",
            "version": "0.7.0",
            "object_size_limit": 262144000,
            "presigned_url_expiry": 3600,
            "data_protocol": "Load-S3",
        }.items()
    )
    assert len(info["address"]) == 43
    assert (await running.http.get("/stats")).json() == {"total_dataitems_count": 0, "total_dataitems_size": 0}
    assert (await running.http.get("/health")).text == "sidecar running"
    id_ = (await running.upload(b"x")).json()["dataitem_id"]
    old = await running.http.get(f"/{id_}")
    where = f"{running.server.url}/resolve/{id_}"
    assert old.status_code == 403
    assert old.json() == {"error": f"method deprecated since v0.7.0 - please access dataitem from '{where}'"}
    for token, status in (("nobody", 401), (running.token, 401), (running.new_token(is_admin=True), 501)):
        post = await running.http.post(f"/post/{id_}", headers={"authorization": f"Bearer {token}"})
        assert post.status_code == status
    assert (await running.http.post(f"/post/{id_}")).json() == {"error": "missing Authorization header"}
    head = await running.http.head("/stats")
    assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)
    assert (await running.http.get("/a/b/c/d")).status_code == 404
    assert (await running.http.delete("/upload")).status_code == 405


async def test_pages_of_any_origin_may_use_it(running: Gateway) -> None:
    preflight = await running.http.options(
        "/upload", headers={"origin": "https://x", "access-control-request-method": "POST"}
    )
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert (await running.upload(b"x")).headers["access-control-allow-origin"] == "*"
    assert (await running.upload(b"x", token="bad")).headers["access-control-allow-origin"] == "*"
