"""POST /upload: raw and signed items, the agent's tags, the form's quirks, and every status and error string."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from tests.adapters.objects.simulated_objects import SimulatedObjects
from tests.gateway.running_gateway import BOUNDARY, Field, Gateway, form

from holdfast.adapters.keys.item_signatures import is_signed_by_owner
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused
from holdfast.wire.ans104 import DataHash, ItemHeader, Tag, build_item, parse_header

KEY = SigningKey.from_seed(b"\5" * 32)


def signed(data: bytes, *tags: Tag) -> tuple[str, bytes]:
    item = build_item(KEY, tags, data)
    assert not isinstance(item, Refused)
    return item


async def item_of(running: Gateway, id_: str) -> tuple[ItemHeader, bytes]:
    raw = (await running.http.get(f"/binary/{id_}")).content
    header = parse_header(raw)
    assert isinstance(header, ItemHeader)
    return header, raw[len(header.encode()) :]


async def tags_of(running: Gateway, id_: str) -> list[tuple[str, str]]:
    header, _ = await item_of(running, id_)
    return [(name.decode(), value.decode()) for name, value in header.tags]


# ------------------------------------------------------------------------------------------------ what is stored


@pytest.mark.rule("ARC-004")
async def test_a_raw_upload_becomes_a_signed_item_and_the_same_again_has_the_same_id(running: Gateway) -> None:
    first = await running.upload(b"hello", tags=[{"key": "a", "value": "b"}])
    assert first.status_code == 200
    answer = first.json()
    assert answer == {
        "success": True,
        "dataitem_id": answer["dataitem_id"],
        "custom_tags": [{"key": "a", "value": "b"}],
        "message": "file uploaded successfully",
    }
    header, data = await item_of(running, answer["dataitem_id"])
    assert (data, header.id) == (b"hello", answer["dataitem_id"])
    assert is_signed_by_owner(header, DataHash(data))
    assert header.owner_address == (await running.http.get("/")).json()["address"]
    stored = await running.stored()
    again = await running.upload(b"hello", tags=[{"key": "a", "value": "b"}])
    assert again.json() == answer
    assert await running.stored() == stored
    assert (await running.http.get("/stats")).json()["total_dataitems_count"] == 1


@pytest.mark.rule("ARC-004")
async def test_a_signed_item_keeps_its_id_its_tags_and_its_bytes(running: Gateway) -> None:
    id_, raw = signed(b"x" * 3_000_000, (b"Content-Type", b"image/png"), (b"k", b"v"))
    answer = await running.upload(raw, signed="true")
    assert (answer.status_code, answer.json()["dataitem_id"], answer.json()["custom_tags"]) == (200, id_, [])
    binary, data = await running.http.get(f"/binary/{id_}"), await running.http.get(f"/resolve/{id_}")
    assert (binary.content, data.content) == (raw, b"x" * 3_000_000)
    assert data.headers["content-type"] == "image/png"
    assert [item["dataitem_id"] for item in (await running.find({"k": "v"})).json()["items"]] == [id_]
    assert running.spooled() == []


@pytest.mark.rule("ARC-004")
async def test_an_item_with_a_wrong_signature_is_refused_and_nothing_is_stored(running: Gateway) -> None:
    _, raw = signed(b"data", (b"k", b"v"))
    for bad in (raw[:-1] + b"X", raw[:10] + b"\0" + raw[11:], raw + b"more", raw[:50], b"\x09\0" + raw[2:], b"no item"):
        answer = await running.upload(bad, signed="true")
        assert answer.status_code == 500
        assert answer.json()["error"].startswith("failed to store file: ")
    assert await running.stored() == []


@pytest.mark.rule("ARC-004")
async def test_an_empty_file_is_an_item(running: Gateway) -> None:
    id_ = (await running.upload(b"")).json()["dataitem_id"]
    answer = await running.http.get(f"/resolve/{id_}")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.rule("ARC-004")
async def test_provenance_is_a_signed_statement_that_can_be_asked_for_later(running: Gateway) -> None:
    plain = (await running.upload(b"without")).json()
    proven = (await running.upload(b"with", offchain_provenance="true")).json()
    assert "offchain_provenance_proof" not in plain
    header, data = await item_of(running, proven["offchain_provenance_proof"])
    assert data == b""
    assert is_signed_by_owner(header, DataHash(b""))
    assert (b"Dataitem-Record", proven["dataitem_id"].encode()) in header.tags
    assert (b"Data-Protocol", b"Load-S3-Offchain-Provenance") in header.tags
    answer = (await running.http.get(f"/provenance/{proven['dataitem_id']}")).json()
    assert answer["offchain_provenance_proof"] == proven["offchain_provenance_proof"]
    missing = await running.http.get(f"/provenance/{plain['dataitem_id']}")
    assert (missing.status_code, missing.json()) == (404, {"error": "no provenance record for this dataitem"})


# ------------------------------------------------------------------------------------------------ tags

INJECTION = ("a", 'it\'s \\ "quoted" ; DROP TABLE gateway_item --')


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ([], []),
        ([("a", "1"), ("b", "2")], [("a", "1"), ("b", "2")]),
        ([(" a ", " 1 ")], [("a", "1")]),
        ([("a", ""), ("", "1"), ("  ", "x")], []),
        ([("a", "1"), ("A", "2")], [("a", "1")]),
        ([("storage-PROVIDER", "x"), ("Agent-Version", "y")], []),
        ([("n" * 1024, "v" * 1024)], [("n" * 1024, "v" * 1024)]),
        ([("n" * 1025, "v"), ("n", "v" * 1025), ("ü" * 513, "v")], []),
        (
            [("a", 'it\'s \\ "quoted" ; DROP TABLE gateway_item --')],
            [("a", 'it\'s \\ "quoted" ; DROP TABLE gateway_item --')],
        ),
    ],
)
async def test_custom_tags_follow_the_agents_own(
    running: Gateway, sent: list[tuple[str, str]], kept: list[tuple[str, str]]
) -> None:
    tags = [{"key": key, "value": value, "more": 1} for key, value in sent]
    answer = await running.upload(b"x", tags=tags)
    assert answer.json()["custom_tags"] == [{"key": key, "value": value} for key, value in sent]
    base = [("Content-Type", "text/plain"), ("Storage-Provider", "Load-S3"), ("Agent-Version", "agent@0.7.0")]
    assert await tags_of(running, answer.json()["dataitem_id"]) == base + kept
    for key, value in kept:
        assert (await running.find({key: value})).json()["count"] == 1


@pytest.mark.rule("ARC-004")
async def test_a_custom_content_type_replaces_the_parts_and_comes_last(running: Gateway) -> None:
    tags = [
        {"key": "content-type", "value": "a/b"},
        {"key": "z", "value": "1"},
        {"key": "Content-Type", "value": "c/d"},
    ]
    id_ = (await running.upload(b"x", tags=tags)).json()["dataitem_id"]
    assert await tags_of(running, id_) == [
        ("Storage-Provider", "Load-S3"),
        ("Agent-Version", "agent@0.7.0"),
        ("z", "1"),
        ("content-type", "a/b"),
    ]
    assert (await running.http.get(f"/resolve/{id_}")).headers["content-type"] == "a/b"


@pytest.mark.rule("ARC-004")
async def test_more_tags_than_an_item_can_have_are_refused(running: Gateway) -> None:
    for tags in ([(f"n{n}", "v") for n in range(126)], [(f"{n}" * 100, "v" * 1000) for n in range(4)]):
        answer = await running.upload(b"x", tags=[{"key": key, "value": value} for key, value in tags])
        assert answer.status_code == 500
        assert answer.json()["error"].startswith("failed to store file: ")
    assert await running.stored() == []


# ------------------------------------------------------------------------------------------------ the form's quirks

TYPED, UNTYPED = ("file", b"data", "a/b"), ("file", b"data", None)
NAMED = ("content_type", b"c/d", None)
OTHER = ("something", b"else" * 1000, "x/y")
NEARLY = b"\r\n--" + BOUNDARY.encode()[:-1] + b"\r\n\r\n--"
"""Data that looks like a boundary and is none."""
BAD_TAGS = "invalid tags payload, expected JSON array of objects with key/value"


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    ("fields", "content_type", "data"),
    [
        ([TYPED], "a/b", b"data"),
        ([UNTYPED], "application/octet-stream", b"data"),
        ([TYPED, NAMED], "a/b", b"data"),
        ([NAMED, TYPED], "a/b", b"data"),
        ([UNTYPED, NAMED], "c/d", b"data"),
        ([NAMED, UNTYPED], "application/octet-stream", b"data"),
        ([TYPED, UNTYPED], "application/octet-stream", b"data"),
        ([UNTYPED, NAMED, ("content_type", b"e/f", None)], "c/d", b"data"),
        ([("file", b"first", "x/x"), ("file", b"second", "a/b")], "a/b", b"second"),
        ([OTHER, TYPED, OTHER, NAMED, OTHER], "a/b", b"data"),
        ([("file", NEARLY, "a/b")], "a/b", NEARLY),
    ],
)
async def test_the_type_and_the_file_that_count(
    running: Gateway, fields: list[Field], content_type: str, data: bytes
) -> None:
    answer = await running.post_form(fields)
    assert answer.status_code == 200, answer.text
    read = await running.http.get(f"/resolve/{answer.json()['dataitem_id']}")
    assert (read.headers["content-type"], read.content) == (content_type, data)


@pytest.mark.rule("ARC-004")
async def test_fields_in_every_order_give_the_same_item(running: Gateway) -> None:
    fields = [("file", b"data", "a/b"), ("tags", b'[{"key":"k","value":"v"}]', None), ("content_type", b"a/b", None)]
    answers = [(await running.post_form(order)).json() for order in itertools.permutations(fields)]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.rule("ARC-004")
async def test_of_two_fields_of_tags_the_later_counts_and_a_part_without_a_name_is_ignored(running: Gateway) -> None:
    tags: list[Field] = [("tags", b'[{"key":"k","value":"%s"}]' % value, None) for value in (b"first", b"second")]
    body = form([*tags, TYPED]).replace(b'form-data; name="tags"', b"form-data", 1)
    for sent in (form([*tags, TYPED]), body):
        answer = await running.post_raw(sent)
        assert (answer.status_code, answer.json()["custom_tags"]) == (200, [{"key": "k", "value": "second"}])


@pytest.mark.rule("ARC-004")
async def test_a_body_in_pieces_of_any_size_is_the_same_item(running: Gateway) -> None:
    body = form([("file", bytes(range(256)) * 8, "a/b"), ("tags", b'[{"key":"k","value":"v"}]', None)])
    whole = (await running.post_raw(body)).json()["dataitem_id"]
    headers = {"authorization": f"Bearer {running.token}", "content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    for size in (1, 7, 100, 1_000):

        async def pieces(size: int = size) -> Any:
            for at in range(0, len(body), size):
                yield body[at : at + size]

        answer = await running.http.post("/upload", content=pieces(), headers=headers)
        assert answer.json()["dataitem_id"] == whole


# ------------------------------------------------------------------------------------------------ errors


@pytest.mark.rule("ARC-004", "SEC-001")
@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        (None, "missing Authorization header"),
        ("", "invalid Authorization header format. Expected 'Bearer <token>'"),
        ("Basic abc", "invalid Authorization header format. Expected 'Bearer <token>'"),
        ("bearer TOKEN", "invalid Authorization header format. Expected 'Bearer <token>'"),
        ("Bearer nonsense", "invalid load_acc key"),
        ("Bearer load_acc_0000000000000000_secret", "invalid load_acc key"),
        ("Bearer TOKENx", "invalid load_acc key"),
        ("Bearer ä", "invalid load_acc key"),
    ],
)
async def test_without_a_key_nothing_is_stored(running: Gateway, authorization: str | None, says: str) -> None:
    headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    if authorization is not None:
        headers["authorization"] = authorization.replace("TOKEN", running.token)
    for path in ("/upload", "/upload/private"):
        encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        answer = await running.http.post(path, content=form([TYPED]), headers=encoded)
        assert (answer.status_code, answer.json()) == (401, {"error": says})
    assert await running.stored() == []


@pytest.mark.rule("SEC-001")
async def test_a_revoked_key_is_refused_at_once_and_a_new_one_accepted(running: Gateway) -> None:
    token = running.new_token()
    assert (await running.upload(b"a", token=token)).status_code == 200
    assert not isinstance(running.server.keys.revoke(token.split("_")[2], 5), Refused)
    answer = await running.upload(b"b", token=token)
    assert (answer.status_code, answer.json()) == (401, {"error": "invalid API key"})


@pytest.mark.rule("SEC-001")
async def test_without_any_key_the_server_says_that_it_is_not_configured(running: Gateway) -> None:
    (running.folder / "keys.json").unlink()
    running.server.keys.keys()  # the file is looked at now, not within the next moment
    answer = await running.upload(b"a")
    assert (answer.status_code, answer.json()) == (500, {"error": "server configuration error"})


@pytest.mark.rule("ARC-004", "SEC-001")
@pytest.mark.parametrize(
    ("fields", "headers", "says"),
    [
        ([NAMED], {}, "no file data provided"),
        ([], {}, "no file data provided"),
        ([TYPED, ("tags", b"{}", None)], {}, BAD_TAGS),
        (
            [TYPED, ("tags", b'[{"key":"a"}]', None)],
            {},
            BAD_TAGS,
        ),
        (
            [TYPED, ("tags", b'[{"key":"a","value":1}]', None)],
            {},
            BAD_TAGS,
        ),
        ([TYPED, ("tags", b"[" * 100_000, None)], {}, BAD_TAGS),
        ([TYPED, ("tags", b'[{"key":"a","value":"b","x":' + b"[" * 9_000, None)], {}, BAD_TAGS),
        ([("tags", b"{}", None), ("tags", b"[]", None), TYPED], {}, BAD_TAGS),
        ([("tags", b"{}", None)], {}, BAD_TAGS),
        ([TYPED, ("tags", b"\xff", None)], {}, "failed to read tags field"),
        ([TYPED, ("tags", b"[" + b" " * (1 << 20), None)], {}, "failed to read tags field"),
        ([UNTYPED, ("content_type", b"\xff", None)], {}, "failed to read content type"),
        (
            [TYPED, ("tags", b'[{"key":"a","value":"b"}]', None)],
            {"signed": "true"},
            "custom tags are not supported when uploading signed dataitems, the dataitems tags will be extracted and"
            " appied instead",
        ),
    ],
)
async def test_bad_forms_are_answered_in_the_agents_words(
    running: Gateway, fields: list[Field], headers: dict[str, str], says: str
) -> None:
    answer = await running.post_form(fields, **headers)
    assert (answer.status_code, answer.json()) == (400, {"error": says})
    assert (await running.stored(), running.spooled()) == ([], [])


@pytest.mark.rule("ARC-004", "SEC-001")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "invalid multipart data"),
        (b"nonsense", "invalid multipart data"),
        (form([TYPED])[:-8], "failed to read file data"),
        (form([TYPED])[:20], "invalid multipart data"),
        (f"--{BOUNDARY}\r\nx: y\r\n\r\n".encode(), "invalid multipart data"),
        (f"--{BOUNDARY}\r\n".encode() + b"x: " + b"y" * 20_000, "invalid multipart data"),
        (form([OTHER] * 100), "invalid multipart data"),
        (form([("tags", b"[", None)])[:-20], "failed to read tags field"),
    ],
)
async def test_bodies_that_are_no_form_are_refused(running: Gateway, body: bytes, says: str) -> None:
    answer = await running.post_raw(body)
    assert (answer.status_code, answer.json()) == (400, {"error": says})
    assert (await running.stored(), running.spooled()) == ([], [])


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("content_type", ["", "text/plain", "multipart/form-data", "multipart/form-data; boundary="])
async def test_without_a_boundary_the_answer_is_plain_text_before_the_key_is_looked_at(
    running: Gateway, content_type: str
) -> None:
    answer = await running.post_raw(b"x", token="nonsense", content_type=content_type)
    assert answer.status_code == 400
    assert answer.text == "Invalid `boundary` for `multipart/form-data` request"


@pytest.mark.rule("ARC-004")
async def test_a_store_that_fails_is_500_and_the_next_attempt_succeeds(
    running: Gateway, objects: SimulatedObjects
) -> None:
    objects.fail_before = {"put_once"}
    answer = await running.upload(b"x")
    assert (answer.status_code, answer.json()) == (500, {"error": "failed to store file: object store: down"})
    objects.fail_before = set()
    assert (await running.upload(b"x")).status_code == 200


async def test_json_of_tags_may_hold_any_text(running: Gateway) -> None:
    tags = json.loads('[{"key":"\\ud834\\udd1e","value":"\\u0000x"}]')
    id_ = (await running.upload(b"x", tags=tags)).json()["dataitem_id"]
    assert (await running.find({"𝄞": "\0x"})).json()["items"][0]["dataitem_id"] == id_
