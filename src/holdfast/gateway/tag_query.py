"""POST /tags/query: what a request asks for, pages, and cursors as load-s3-agent writes them."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.adapters.item_index import IndexedItem, ItemIndex, ItemQuery, tag_key
from holdfast.core.base.errors import Refused
from holdfast.system.strict_json import NOT_JSON
from holdfast.wire.ans104 import decode_tags, is_item_id

FIRST_DEFAULT, FIRST_MAX = 25, 100
FILTERS_MAX: Final = 32


class Filter(msgspec.Struct, frozen=True):
    """A tag that an item must have."""

    key: str
    value: str


class TagsRequest(msgspec.Struct, frozen=True):
    """The body of a query; those of newer agents have more members."""

    filters: list[Filter] = []
    first: int | None = None
    after: str | None = None
    full_metadata: bool | None = None
    owner: str | None = None
    target: str | None = None
    created_after: str | None = None
    created_before: str | None = None


class _Cursor(msgspec.Struct, frozen=True):
    created_at: str
    dataitem_id: str


def parse_query(request: TagsRequest) -> tuple[ItemQuery | None, int] | Refused:
    """The query and the size of a page; None instead of a query that nothing can match."""
    if not request.filters and request.owner is None and request.target is None:
        return _refuse("filters array must not be empty")
    first = FIRST_DEFAULT if request.first is None else request.first
    if first < 1:
        return _refuse("first must be greater than 0")
    if first > FIRST_MAX:
        return _refuse(f"first must not exceed {FIRST_MAX}")
    if len(request.filters) > FILTERS_MAX:
        return _refuse(f"filters must not exceed {FILTERS_MAX}")
    before = None if request.after is None else _read_cursor(request.after)
    if isinstance(before, Refused):
        return before
    bounds = [_read_bound(name, getattr(request, name)) for name in ("created_after", "created_before")]
    for bound in bounds:
        if isinstance(bound, Refused):
            return bound
    tags = _tag_keys(request.filters)
    if tags is None or not all(each is None or is_item_id(each) for each in (request.owner, request.target)):
        return None, first
    query = ItemQuery(tags, request.owner, request.target, bounds[0], bounds[1], before)  # type: ignore[arg-type]
    return query, first


async def run_query(index: ItemIndex, request: TagsRequest) -> dict[str, object] | Refused:
    """One page, in the words of the API."""
    parsed = parse_query(request)
    if isinstance(parsed, Refused):
        return parsed
    query, first = parsed
    query = None if query is None else await index.rarest_first(query)
    found = [] if query is None else await index.find(query, first + 1)
    page, has_next = found[:first], len(found) > first
    is_whole = not has_next and request.after is None
    total = len(page) if is_whole or query is None else await index.count(query)
    cursor = _write_cursor(page[-1]) if has_next else None
    return {
        "success": True,
        "count": len(page),
        "total_count": total,
        "items": [item_json(item, is_full=bool(request.full_metadata)) for item in page],
        "page_info": {"has_next_page": has_next, "next_cursor": cursor},
    }


def item_json(item: IndexedItem, *, is_full: bool) -> dict[str, object]:
    short: dict[str, object] = {
        "dataitem_id": item.id,
        "content_type": item.content_type,
        "created_at": rfc3339(item.created_ms),
        "dataitem_size": item.size,
    }
    if not is_full:
        return short
    tags = decode_tags(item.raw_tags)
    pairs = [] if isinstance(tags, Refused) else tags
    texts = [
        {"key": name.decode("utf-8", "replace"), "value": value.decode("utf-8", "replace")} for name, value in pairs
    ]
    return {**short, "owner": item.owner, "target": item.target or None, "tags": texts}


def rfc3339(ms: int) -> str:
    """As the agent writes it: milliseconds and the offset."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _tag_keys(filters: list[Filter]) -> tuple[bytes, ...] | None:
    """None where nothing can match: an empty filter, or one key with two filters (the agent's behaviour)."""
    pairs = [
        (each.key.strip().encode("utf-8", "replace"), each.value.strip().encode("utf-8", "replace")) for each in filters
    ]
    if any(not name or not value for name, value in pairs) or len({name for name, _ in pairs}) < len(pairs):
        return None
    return tuple(tag_key(name, value) for name, value in pairs)


def _write_cursor(item: IndexedItem) -> str:
    raw = msgspec.json.encode(_Cursor(rfc3339(item.created_ms), item.id))
    return base64.b64encode(raw).rstrip(b"=").decode("ascii")


def _read_cursor(text: str) -> tuple[int, str] | Refused:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return _refuse("invalid cursor: invalid pagination cursor encoding")
    try:
        cursor = msgspec.json.decode(raw, type=_Cursor)
    except NOT_JSON:
        return _refuse("invalid cursor: invalid pagination cursor payload")
    created_ms = _read_time(cursor.created_at)
    if created_ms is None:
        return _refuse("invalid cursor: invalid pagination cursor timestamp")
    if not is_item_id(cursor.dataitem_id):
        return _refuse("invalid cursor: invalid pagination cursor payload")
    return created_ms, cursor.dataitem_id


def _read_bound(name: str, text: str | None) -> int | Refused | None:
    if text is None:
        return None
    created_ms = _read_time(text)
    return _refuse(f"invalid {name}, expected RFC3339") if created_ms is None else created_ms


def _read_time(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        return None
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _refuse(message: str) -> Refused:
    return Refused("ARC-004", message, name="InvalidParams")
