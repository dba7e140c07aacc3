"""Our items through arbundles, the library that most programs use: full runs only, since it comes over the network."""

from __future__ import annotations

import pytest
from tests.wire.third_party_items import third_party_ids

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused
from holdfast.wire.ans104 import PORTABLE_TAG_BYTES, Tag, build_item, encode_tags


@pytest.mark.full
@pytest.mark.rule("ARC-004")
def test_arbundles_verifies_our_items_and_finds_the_same_ids() -> None:
    key = SigningKey.from_seed(b"\1" * 32)
    most: list[Tag] = [(b"n" * 1024, b"v" * (PORTABLE_TAG_BYTES - 1024 - 6))]
    assert len(encode_tags(most)) == PORTABLE_TAG_BYTES
    more: list[Tag] = [(most[0][0], most[0][1] + b"v")]
    ids, items = [], []
    for tags in ([], [(b"a", b"b")], [(b"Content-Type", b"text/plain"), ("höhe".encode(), b"7")] * 20, most, more):
        for data in (b"", b"hello", bytes(100_000)):
            item = build_item(key, tags, data)
            assert not isinstance(item, Refused)
            ids.append(item[0] if tags is not more else "invalid")
            items.append(item[1])
    damaged = bytes([*items[1][:-1], items[1][-1] ^ 1])
    assert third_party_ids([*items, damaged]) == [*ids, "invalid"]
