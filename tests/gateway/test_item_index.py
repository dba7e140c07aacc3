"""What the gateway's index means, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.item_index import BucketEntry, IndexedItem, ItemIndex, ItemQuery, tag_key
from holdfast.adapters.postgres.connect import Database
from holdfast.adapters.postgres.item_index import PostgresItemIndex
from holdfast.adapters.sql import item_queries
from holdfast.adapters.sqlite.item_index import SqliteItemIndex
from holdfast.core.base.errors import Unavailable
from holdfast.wire.ans104 import item_id

RED, BLUE, SIZE = tag_key(b"colour", b"red"), tag_key(b"colour", b"blue"), tag_key(b"size", b"7")


class Opener:
    """Opens the same index again and again."""

    def __init__(self, kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._kind, self._folder = kind, folder
        self._address: Any = request.getfixturevalue("postgres").address() if kind == "postgres" else None

    def make(self, query_ms: int = 60_000) -> ItemIndex:
        if self._kind == "sqlite":
            clock = MachineClock()
            return SqliteItemIndex(self._folder / "index.db", query_ms=query_ms, monotonic_ms=clock.monotonic_ms)
        return PostgresItemIndex(Database(*self._address), query_ms=query_ms)


def kill(index: Any) -> None:
    """What is left of an index whose process was killed: its lock is free, nothing was closed."""
    if isinstance(index, SqliteItemIndex):
        assert index._lock is not None
        os.close(index._lock)
        index._lock = None
    else:
        index._writer.terminate()


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return Opener(request.param, tmp_path, request)


@pytest.fixture
async def index(opener: Opener) -> AsyncIterator[ItemIndex]:
    made = opener.make()
    await made.open()
    yield made
    await made.close(is_complete=True)


def item(number: int, *, created_ms: int | None = None, is_public: bool = True, **changes: Any) -> IndexedItem:
    made = IndexedItem(
        id=item_id(b"%d" % number),
        created_ms=number if created_ms is None else created_ms,
        size=100 + number,
        content_type="text/plain",
        owner=item_id(b"owner"),
        target="",
        raw_tags=b"\0\xff",
        key_id="key",
        is_public=is_public,
    )
    return made._replace(**changes)


async def ids(index: ItemIndex, query: ItemQuery, limit: int = 100) -> list[str]:
    return [each.id for each in await index.find(query, limit)]


@pytest.mark.rule("ARC-004")
async def test_an_item_is_added_once_and_found_by_every_tag(index: ItemIndex) -> None:
    for _ in range(2):
        await index.add(item(1), [RED, SIZE], None)
    assert await index.get(item(1).id) == item(1)
    assert await index.get(item(2).id) is None
    assert await index.find(ItemQuery((RED,)), 10) == [item(1)]
    assert await index.find(ItemQuery((SIZE, RED)), 10) == [item(1)]
    assert await index.find(ItemQuery((BLUE,)), 10) == []
    assert await index.find(ItemQuery((RED, BLUE)), 10) == []
    assert (await index.totals(), await index.usage("key"), await index.usage("other")) == ((1, 101), (1, 101), (0, 0))


@pytest.mark.rule("ARC-004")
async def test_pages_go_from_the_newest_to_the_oldest_and_miss_nothing(index: ItemIndex) -> None:
    items = [item(number, created_ms=number // 3) for number in range(20)]
    for number, each in enumerate(items):
        await index.add(each, [RED, *([SIZE] if number % 2 else [])], None)
    for query, chosen in ((ItemQuery((RED,)), items), (ItemQuery((RED, SIZE)), items[1::2])):
        expected = [each.id for each in sorted(chosen, key=lambda each: (each.created_ms, each.id), reverse=True)]
        seen: list[str] = []
        before: tuple[int, str] | None = None
        while page := await index.find(query._replace(before=before), 3):
            seen += [each.id for each in page]
            before = (page[-1].created_ms, page[-1].id)
        assert seen == expected
        assert await index.count(query._replace(before=(0, ""))) == len(expected)


@pytest.mark.rule("ARC-004")
async def test_owner_target_and_time_narrow_a_query(index: ItemIndex) -> None:
    mine, other = item_id(b"me"), item_id(b"other")
    await index.add(item(1, owner=mine), [RED], None)
    await index.add(item(2, owner=mine, target=other), [RED], None)
    await index.add(item(3, owner=other), [RED], None)
    assert await ids(index, ItemQuery((), owner=mine)) == [item(2).id, item(1).id]
    assert await ids(index, ItemQuery((RED,), owner=other)) == [item(3).id]
    assert await ids(index, ItemQuery((), target=other)) == [item(2).id]
    assert await ids(index, ItemQuery((), target="")) == []
    assert await ids(index, ItemQuery((RED,), created_from_ms=2, created_until_ms=2)) == [item(2).id]
    assert await ids(index, ItemQuery((), owner=mine, created_from_ms=2)) == [item(2).id]
    assert await index.count(ItemQuery((RED,), created_until_ms=2)) == 2


@pytest.mark.rule("ARC-004")
async def test_a_search_begins_with_the_rarest_tag_also_where_all_are_common(
    index: ItemIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_queries, "PROBE_ROWS", (2, 4, 8))
    common, rare = sorted((tag_key(b"a", b"b"), tag_key(b"c", b"d")))  # a tie would be broken the wrong way
    for number in range(7):
        await index.add(item(number), [common, *([rare] if number < 3 else [])], None)
    query = await index.rarest_first(ItemQuery((common, rare), created_until_ms=9))
    assert query == ItemQuery((rare, common), created_until_ms=9)
    assert len(await ids(index, query)) == await index.count(query) == 3


@pytest.mark.rule("ARC-004")
async def test_a_private_item_is_found_in_its_bucket_alone_until_it_becomes_public(index: ItemIndex) -> None:
    entry = BucketEntry("bucket", "folder", item(1).id, "a name with ' and \\", 1)
    await index.add(item(1, is_public=False), [RED], entry)
    await index.add(item(1, is_public=False), [RED], entry._replace(folder=""))
    assert await ids(index, ItemQuery((RED,))) == []
    assert await ids(index, ItemQuery((), owner=item(1).owner)) == []
    assert await index.entries("bucket") == [entry._replace(folder=""), entry]
    assert await index.entries("other") == []
    await index.add(item(1, created_ms=9), [RED], None)
    assert await index.find(ItemQuery((RED,)), 10) == [item(1, created_ms=9)]
    assert await index.totals() == (1, 101)


@pytest.mark.rule("ARC-004")
async def test_it_says_which_uploads_it_has(index: ItemIndex) -> None:
    entry = BucketEntry("b", "", item(2).id, "", 2)
    await index.add(item(1), [], None)
    await index.add(item(2, is_public=False), [], entry)
    asked: list[tuple[str, BucketEntry | None]] = [
        (item(1).id, None),
        (item(2).id, None),
        (item(2).id, entry),
        (item(2).id, entry._replace(name="x")),
        (item(3).id, None),
    ]
    assert await index.has_all(asked) == [True, False, True, False, False]


@pytest.mark.rule("ARC-004")
async def test_it_is_complete_only_after_it_was_closed_as_such(opener: Opener) -> None:
    first = opener.make()
    assert await first.open() is False
    await first.add(item(1), [RED], None)
    await first.close(is_complete=True)
    second = opener.make()
    assert await second.open() is True
    assert await second.find(ItemQuery((RED,)), 10) == [item(1)]
    await second.close(is_complete=False)
    third = opener.make()
    assert await third.open() is False
    await third.clear()
    assert (await third.totals(), await third.find(ItemQuery((RED,)), 10)) == ((0, 0), [])
    await third.close(is_complete=True)


@pytest.mark.rule("ARC-004")
async def test_an_index_that_was_complete_is_not_after_a_crash(opener: Opener) -> None:
    first, killed, last = opener.make(), opener.make(), opener.make()
    await first.open()
    await first.close(is_complete=True)
    assert await killed.open() is True
    kill(killed)
    for _ in range(200):  # a server may take a moment to notice
        try:
            is_complete = await last.open()
            break
        except Unavailable:
            await asyncio.sleep(0.02)
    assert is_complete is False
    await last.close(is_complete=True)
    await killed.close(is_complete=False)


@pytest.mark.rule("ARC-004")
async def test_a_second_gateway_is_refused_and_a_reader_is_not(opener: Opener, index: ItemIndex) -> None:
    await index.add(item(1), [RED], None)
    second, reader = opener.make(), opener.make()
    with pytest.raises(Unavailable, match="one index belongs to one gateway"):
        await second.open()
    await second.close(is_complete=True)
    assert await reader.totals() == (1, 101)
    await reader.close(is_complete=True)


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_sqlite_ends_a_query_that_takes_too_long_and_answers_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.sqlite.item_index._STEPS", 10)
    steps_ms = [0]

    def clock() -> int:
        return steps_ms.pop() if len(steps_ms) > 1 else steps_ms[0]

    index = SqliteItemIndex(tmp_path / "index.db", query_ms=1, monotonic_ms=clock)
    await index.open()
    for number in range(50):
        await index.add(item(number), [RED, BLUE], None)
    steps_ms += [2, 0]  # at the beginning of the query, and when SQLite asks
    with pytest.raises(Unavailable, match="took longer than 1 ms"):
        await index.count(ItemQuery((RED, BLUE)))
    assert await index.count(ItemQuery((RED, BLUE))) == 50
    await index.close(is_complete=True)


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_postgres_ends_a_query_that_takes_too_long_and_answers_the_next(postgres: Any, admin: Any) -> None:
    address = postgres.address()
    index = PostgresItemIndex(Database(*address), query_ms=50)
    await index.open()
    await index.add(item(1), [RED], None)
    async with admin.transaction():
        await admin.execute(f'LOCK TABLE "{address.schema}".gateway_tag IN ACCESS EXCLUSIVE MODE')
        with pytest.raises(Unavailable, match="took longer than 50 ms"):
            await index.count(ItemQuery((RED,)))
    assert await index.count(ItemQuery((RED,))) == 1
    await index.close(is_complete=True)
