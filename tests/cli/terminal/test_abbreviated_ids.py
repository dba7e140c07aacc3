"""Ids as people type them: a label, a beginning, a height; what is not clear is refused with what it may mean."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from holdfast.cli.terminal.abbreviations import find_height, find_key, find_reservation

KEYS = [
    {"id": "aaaa1111", "label": "laptop", "revoked_ms": None},
    {"id": "aaaa2222", "label": "server", "revoked_ms": None},
    {"id": "bbbb3333", "label": "laptop", "revoked_ms": 5},
]
BLOCKS = [{"hash": "ab" * 32, "height": 7}, {"hash": "abcd" + "00" * 30, "height": 6}, {"hash": "1f" * 32, "height": 5}]
RESERVATIONS = [{"id": "cd" * 32}, {"id": "ce" * 32}]


class Lists:
    """A node with these lists, two rows a page, and the params it was asked with."""

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []

    async def call(self, method: str, **params: object) -> Any:
        self.asked.append(params)
        if method == "key.listKeys":
            return {"keys": KEYS}
        rows = BLOCKS if method == "chain.listBlocks" else RESERVATIONS
        after = int(str(params["after"]))
        return {"rows": rows[after : after + 2], "next_after": after + 2 if len(rows) > after + 2 else None}


@pytest.mark.rule("RPC-001")
async def test_a_key_is_found_by_its_label_its_beginning_or_its_id() -> None:
    found = [await find_key(Lists(), text) for text in ("laptop", "aaaa2", "aaaa1111", "bbbb3333")]
    assert found == ["aaaa1111", "aaaa2222", "aaaa1111", "bbbb3333"]


@pytest.mark.rule("RPC-001")
async def test_a_block_is_found_by_its_height_or_the_beginning_of_its_hash_on_any_page() -> None:
    node = Lists()
    assert [await find_height(node, text) for text in ("3", "abab", "abcd", "1f1f")] == [3, 7, 6, 5]
    assert all(params["newest_first"] for params in node.asked)


@pytest.mark.rule("RPC-001")
async def test_a_whole_reservation_id_is_not_looked_up() -> None:
    node = Lists()
    assert await find_reservation(node, "ff" * 32) == "ff" * 32
    assert node.asked == []
    assert await find_reservation(node, "cdcd") == "cd" * 32


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize(
    ("text", "code", "says"),
    [("aaaa", 2, "means 2 keys"), ("aa", 1, "no key 'aa'"), ("phone", 1, "`holdfast key list`"), ("bbbb", 1, "no key")],
)
async def test_what_is_unknown_or_means_several_is_refused_with_what_to_do(
    text: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        await find_key(Lists(), text)
    assert (ended.value.exit_code, says in capsys.readouterr().err) == (code, True)


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize("text", ["", "abc", "ABCD", "oak", "0x12"])
async def test_what_can_be_no_beginning_is_refused_before_the_node_is_asked(text: str) -> None:
    node = Lists()
    for find in (find_height, find_reservation):
        with pytest.raises(typer.Exit):
            await find(node, text)
    assert node.asked == []
