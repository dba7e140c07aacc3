"""Builds the gateway's searches for both databases: one driving tag in the order of time, the others looked up."""

from __future__ import annotations

from typing import Final

from holdfast.adapters.item_index import IndexedItem, ItemQuery

TABLES: Final = ("gateway_item", "gateway_tag", "gateway_entry", "gateway_usage")
ENTRIES_MAX: Final = 100_000
"""The registry of a larger bucket is cut off."""
PROBE_ROWS: Final = tuple(500 << step for step in range(9))
"""How far tags are counted to find the rarest one: further only while all of them reach the limit."""
_COLUMNS: Final = ", ".join(f"item.{name}" for name in IndexedItem._fields)


class Search:
    """One statement and its values, in the style of the database: `?` or `$1`."""

    def __init__(self, query: ItemQuery, *, is_numbered: bool) -> None:
        self.values: list[object] = []
        self._is_numbered = is_numbered
        self._query = query
        self._is_listing = True

    def find(self, limit: int) -> str:
        return f"SELECT {_COLUMNS} {self._matching()} ORDER BY {self._order()} LIMIT {self._value(limit)}"

    def count(self) -> str:
        self._query, self._is_listing = self._query._replace(before=None), False
        return f"SELECT count(*) {self._matching()}"

    def _matching(self) -> str:
        query, driver = self._query, self._driver()
        where = [] if query.tags else ["item.is_public = 1"]
        if query.tags:
            where.append(f"t0.tag = {self._value(query.tags[0])}")
        for number, tag in enumerate(query.tags[1:], 1):
            where.append(
                f"EXISTS (SELECT 1 FROM gateway_tag t{number} WHERE t{number}.tag = {self._value(tag)}"  # noqa: S608
                f" AND t{number}.created_ms = t0.created_ms AND t{number}.id = t0.id)"
            )
        if query.owner is not None:
            where.append(f"item.owner = {self._value(query.owner)}")
        if query.target is not None:
            where.append(f"item.target = {self._value(query.target)} AND item.target <> ''")
        if query.created_from_ms is not None:
            where.append(f"{driver}.created_ms >= {self._value(query.created_from_ms)}")
        if query.created_until_ms is not None:
            where.append(f"{driver}.created_ms <= {self._value(query.created_until_ms)}")
        if query.before is not None:
            created, id_ = (self._value(value) for value in query.before)
            where.append(f"({driver}.created_ms, {driver}.id) < ({created}, {id_})")
        return f"FROM {self._source()} WHERE {' AND '.join(where)}"

    def _source(self) -> str:
        if not self._query.tags:
            return "gateway_item item"
        needs_item = self._is_listing or self._query.owner is not None or self._query.target is not None
        return "gateway_tag t0" + (" JOIN gateway_item item ON item.id = t0.id" if needs_item else "")

    def _order(self) -> str:
        return f"{self._driver()}.created_ms DESC, {self._driver()}.id DESC"

    def _driver(self) -> str:
        return "t0" if self._query.tags else "item"

    def _value(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}" if self._is_numbered else "?"


def probe(rows: int, *, is_numbered: bool) -> str:
    """How many items have a tag, counted up to a number of rows."""
    sign = "$1" if is_numbered else "?"
    return f"SELECT count(*) FROM (SELECT 1 FROM gateway_tag WHERE tag = {sign} LIMIT {rows}) AS probed"  # noqa: S608


def rarest_first(query: ItemQuery, counts: list[int]) -> ItemQuery:
    ordered = [tag for _, tag in sorted(zip(counts, query.tags, strict=True))]
    return query._replace(tags=tuple(ordered))


def item_from_row(row: tuple[object, ...]) -> IndexedItem:
    item = IndexedItem._make(row)
    return item._replace(is_public=bool(item.is_public))
