"""What an index of the gateway's items does, whichever database it is in (ARC-004).

It has one conformance suite; `sqlite/item_index.py` and `postgres/item_index.py` implement it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol


def tag_key(name: bytes, value: bytes) -> bytes:
    """What a tag is found by: tags are compared, never searched, and may be longer than an index allows."""
    return hashlib.sha256(len(name).to_bytes(2, "big") + name + value).digest()


class IndexedItem(NamedTuple):
    """A data item as the gateway's index has it."""

    id: str
    created_ms: int
    size: int
    content_type: str
    owner: str
    """The owner's address."""
    target: str
    """base64url; empty where there is none."""
    raw_tags: bytes
    key_id: str
    is_public: bool


class BucketEntry(NamedTuple):
    """A private item in its bucket."""

    bucket: str
    folder: str
    id: str
    name: str
    created_ms: int


class ItemQuery(NamedTuple):
    """Public items that have all these tags, newest first."""

    tags: tuple[bytes, ...]
    """Each tag as its `tag_key`."""
    owner: str | None = None
    target: str | None = None
    created_from_ms: int | None = None
    """Inclusive, like the other bound."""
    created_until_ms: int | None = None
    before: tuple[int, str] | None = None
    """Go on below this time and id."""


class ItemIndex(Protocol):
    """What the gateway finds items by. It only repeats what the store's records say, and can be rebuilt (ARC-004)."""

    async def open(self) -> bool:
        """Whether it is complete: the last gateway has closed it, and nothing was left to add.

        One gateway at a time: Unavailable if another one has it open.
        """
        ...

    async def add(self, item: IndexedItem, tag_keys: Sequence[bytes], entry: BucketEntry | None) -> None:
        """Add an item, its tags where it is public, its place in a bucket where it is not. Again is no change."""
        ...

    async def get(self, id_: str) -> IndexedItem | None: ...

    async def rarest_first(self, query: ItemQuery) -> ItemQuery:
        """The same query, to be asked faster: the items of its first tag are gone through."""
        ...

    async def find(self, query: ItemQuery, limit: int) -> list[IndexedItem]: ...

    async def count(self, query: ItemQuery) -> int:
        """All that match, `before` left out."""
        ...

    async def totals(self) -> tuple[int, int]:
        """Number of items, and their bytes."""
        ...

    async def usage(self, key_id: str) -> tuple[int, int]:
        """Number and bytes of the items that this key was the first to upload."""
        ...

    async def entries(self, bucket: str) -> list[BucketEntry]: ...

    async def has_all(self, uploads: Sequence[tuple[str, BucketEntry | None]]) -> list[bool]:
        """Whether each upload is in the index: a public item (None), or a private one at its place."""
        ...

    async def clear(self) -> None:
        """Forget everything: it will be added again."""
        ...

    async def close(self, *, is_complete: bool) -> None: ...
