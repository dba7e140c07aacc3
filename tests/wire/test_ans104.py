"""ANS-104 items: the vectors of arbundles, every limit, every cut, and signatures that only fit their own bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.keys.item_signatures import SECP256K1_ORDER, is_signed_by_owner
from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused
from holdfast.wire import ans104
from holdfast.wire.ans104 import DataHash, ItemHeader

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "ans104.json").read_text("utf-8"))
"""Items that arbundles 1.0.4 has made and verified."""
KEY = SigningKey.from_seed(b"\7" * 32)
TAGS = [(b"Content-Type", b"text/plain"), ("höhe".encode(), b"7")]


def header_of(raw: bytes) -> ItemHeader:
    header = ans104.parse_header(raw)
    assert isinstance(header, ItemHeader), header
    return header


def built(tags: list[ans104.Tag], data: bytes) -> bytes:
    item = ans104.build_item(KEY, tags, data)
    assert not isinstance(item, Refused)
    return item[1]


def with_tags(raw_tags: bytes, count: int) -> bytes:
    """An item whose tags are these bytes; its signature is not theirs."""
    empty = built([], b"")
    return empty[:-16] + count.to_bytes(8, "little") + len(raw_tags).to_bytes(8, "little") + raw_tags


# ------------------------------------------------------------------------------------------------ other programs' items


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_items_of_arbundles_are_read_and_verified(vector: dict[str, Any]) -> None:
    raw, data = bytes.fromhex(vector["item"]), bytes.fromhex(vector["data"])
    header = header_of(raw)
    assert header.id == vector["id"]
    assert [[name.decode(), value.decode()] for name, value in header.tags] == vector["tags"]
    assert header.encode() + data == raw
    assert ans104.header_length(raw) == len(raw) - len(data)
    assert is_signed_by_owner(header, DataHash(data))


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_no_bit_of_an_item_can_change(vector: dict[str, Any]) -> None:
    raw, length = bytes.fromhex(vector["item"]), len(bytes.fromhex(vector["item"])) - len(bytes.fromhex(vector["data"]))
    for at in range(0, len(raw), max(1, len(raw) // 60)):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        header = ans104.parse_header(changed)
        if isinstance(header, ItemHeader) and header.type == raw[0] and ans104.header_length(changed) == length:
            assert not is_signed_by_owner(header, DataHash(changed[length:])), at


@pytest.mark.rule("ARC-004")
def test_the_other_signature_of_ethereum_is_refused_since_it_would_be_a_second_id() -> None:
    raw = bytes.fromhex(next(vector["item"] for vector in VECTORS if vector["name"] == "ethereum"))
    header = header_of(raw)
    s = SECP256K1_ORDER - int.from_bytes(header.signature[32:64], "big")
    other = msgspec.structs.replace(
        header, signature=header.signature[:32] + s.to_bytes(32, "big") + header.signature[64:]
    )
    assert is_signed_by_owner(header, DataHash(b"hello"))
    assert not is_signed_by_owner(other, DataHash(b"hello"))


@pytest.mark.parametrize(
    ("message", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (b"a" * 135, "34367dc248bbd832f4e3e69dfaac2f92638bd0bbd18f2912ba4ef454919cf446"),
        (b"a" * 136, "a6c4d403279fe3e0af03729caada8374b5ca54d8065329a3ebcaeb4b60aa386e"),
    ],
)
def test_keccak_is_ethereums(message: bytes, digest: str) -> None:
    assert keccak_256(message).hex() == digest


# ------------------------------------------------------------------------------------------------ our own items


@pytest.mark.rule("ARC-004")
def test_the_same_bytes_and_tags_have_the_same_id_and_others_have_another() -> None:
    assert built(TAGS, b"x") == built(TAGS, b"x")
    ids = {header_of(built(tags, data)).id for tags in (TAGS, TAGS[::-1], []) for data in (b"x", b"y", b"")}
    assert len(ids) == 9


@pytest.mark.rule("ARC-004")
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=80), st.binary(min_size=1, max_size=200)), max_size=12),
    st.binary(max_size=200),
    st.integers(1, 50),
)
def test_what_is_built_in_pieces_is_read_again_and_verified(tags: list[ans104.Tag], data: bytes, size: int) -> None:
    hashed = DataHash()
    for at in range(0, len(data), size):
        hashed.update(memoryview(data)[at : at + size])
    assert hashed.digest() == DataHash(data).digest()
    header = ans104.sign_header(KEY, tags, hashed, target=b"t" * 32, anchor=b"a" * 32)
    assert isinstance(header, ItemHeader)
    assert header_of(header.encode() + data) == header
    assert is_signed_by_owner(header, hashed)


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([(b"a", b"b")] * 129, "129 tags, at most 128"),
        ([(b"", b"b")], "tag 0: a name of 0 bytes, expected 1 to 1024"),
        ([(b"a", b"b"), (b"a", b"")], "tag 1: a value of 0 bytes, expected 1 to 3072"),
        ([(b"a" * 1025, b"b")], "tag 0: a name of 1025 bytes, expected 1 to 1024"),
        ([(b"a", b"b" * 3073)], "tag 0: a value of 3073 bytes, expected 1 to 3072"),
    ],
)
def test_tags_beyond_a_limit_are_refused(tags: list[ans104.Tag], message: str) -> None:
    built_item, read = (
        ans104.build_item(KEY, tags, b""),
        ans104.parse_header(with_tags(ans104.encode_tags(tags), len(tags))),
    )
    assert isinstance(built_item, Refused)
    assert isinstance(read, Refused)
    assert (built_item.rule, built_item.message) == ("ARC-004", message)
    assert read.message in (message, "more than 128 tags")


@pytest.mark.rule("ARC-004")
def test_tags_at_their_limits_are_accepted() -> None:
    tags = [(b"n" * 1024, b"v" * 3072)] * 128
    assert header_of(built(tags, b"data")).tags == tuple(tags)


# ------------------------------------------------------------------------------------------------ foreign bytes


@pytest.mark.rule("ARC-004")
def test_a_header_that_is_cut_is_refused_at_every_byte_and_its_length_is_known_as_early_as_possible() -> None:
    raw = built(TAGS, b"")
    fixed = len(raw) - len(ans104.encode_tags(TAGS))
    for cut in range(len(raw)):
        assert isinstance(ans104.parse_header(raw[:cut]), Refused)
        assert ans104.header_length(raw[:cut]) == (len(raw) if cut >= fixed else None)


@pytest.mark.rule("ARC-004")
def test_tags_in_several_blocks_are_read() -> None:
    one, two = ans104.encode_tags(TAGS[:1])[1:-1], ans104.encode_tags(TAGS[1:])[1:-1]
    blocks = b"\x02" + one + b"\x01" + bytes([len(two) * 2]) + two + b"\0"
    assert header_of(with_tags(blocks, 2)).tags == tuple(TAGS)
    assert header_of(with_tags(b"\0", 0)).tags == ()


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "0 bytes end inside the header"),
        (b"\x09\x00" + bytes(200), "unknown signature type 9"),
        (b"\x02\x00" + bytes(96) + b"\x02" + bytes(100), "target: its flag is 2, expected 0 or 1"),
        (b"\x02\x00" + bytes(96) + b"\x00\x03" + bytes(100), "anchor: its flag is 3, expected 0 or 1"),
        (with_tags(b"\x02\x02a\x02b\x00", 2), "1 tags, the header says 2"),
        (with_tags(b"\x02\x02a\x02b\x00\x00", 1), "1 bytes after the tags"),
        (with_tags(b"\x02\x02a\x02b", 1), "the tags end early"),
        (with_tags(b"\x02\x01a\x02b\x00", 1), "a length of -1"),
        (with_tags(b"\xff" * 11, 1), "a number of more than 64 bits"),
        (with_tags(b"\xfe\xff\xff\xff\x0f", 1), "more than 128 tags"),
        (with_tags(b"", 0)[:-8] + b"\xff" * 8, "18446744073709551615 bytes of tags, at most 525312"),
    ],
)
def test_what_is_no_item_is_refused_with_its_reason(raw: bytes, message: str) -> None:
    refusal = ans104.parse_header(raw)
    assert isinstance(refusal, Refused)
    assert (refusal.rule, refusal.message) == ("ARC-004", message)


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for start in (b"", b"\x01\x00", b"\x02\x00", b"\x03\x00", with_tags(b"", 1)[:-8] + len(raw).to_bytes(8, "little")):
        header = ans104.parse_header(start + raw)
        assert isinstance(header, Refused) or header.encode() == (start + raw)[: len(header.encode())]


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("L4J7z72Ws21BdwRewFM9Cpb-t1m3qS5e_Ht8onMxL6I", True),
        ("L4J7z72Ws21BdwRewFM9Cpb-t1m3qS5e_Ht8onMxL6J", False),  # the same bytes, spelt in another way
        ("L4J7z72Ws21BdwRewFM9Cpb+t1m3qS5e_Ht8onMxL6I", False),
        ("L4J7z72Ws21BdwRewFM9Cpb-t1m3qS5e_Ht8onMxL6", False),
        ("../../../../../../../../../../../etc/passwd", False),
        ("ä" * 43, False),
        ("", False),
    ],
)
def test_only_one_spelling_is_an_id(text: str, is_id: bool) -> None:
    assert ans104.is_item_id(text) is is_id
