"""Claims as bytes, the same on every store: records of one width, sorted by claim id, about a page of them in a row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim, claim_id

_REST: Final = struct.Struct(">QQQ")
ID_BYTES: Final = 16
_RECORD: Final = struct.Struct(f">{ID_BYTES}sQQQ")
RECORD_BYTES: Final = ID_BYTES + _REST.size
"""Claim id, event, checksum, until when it counts (0: for ever); big endian, so that bytes sort like numbers."""
RECORDS_PER_PAGE: Final = 100
"""With its key and header just below the 4 KiB of a page of SQLite; two of them fill a page of PostgreSQL."""
_PREFIXES: Final = struct.Struct(f">Q{RECORD_BYTES - 8}x")

ClaimPage = tuple[bytes, bytes]
"""The first claim id of a page, and its records."""


def pack_claims(claims: Iterable[tuple[bytes, Claim]]) -> tuple[list[bytes], list[bytes]]:
    """The records of claims that count for ever, and of those that count for a while."""
    lasting, temporary = list[bytes](), list[bytes]()
    pack, add = _RECORD.pack, lasting.append
    for key, claim in claims:
        record = pack(claim_id(key), claim.event, claim.checksum, claim.until_ms)
        (temporary.append if claim.until_ms else add)(record)
    return lasting, temporary


def unpack_record(record: bytes) -> tuple[bytes, int, int, int]:
    """Claim id, event, checksum and until: a claim as `Tables.dump` yields it."""
    return (record[:ID_BYTES], *_REST.unpack_from(record, ID_BYTES))


def until_of(record: bytes) -> int:
    return int.from_bytes(record[-8:], "big")


def split_pages(pages: Iterable[bytes]) -> list[bytes]:
    """The records of some pages; Corrupt where one was cut."""
    records = list[bytes]()
    for page in pages:
        check_page(page)
        records += [page[at : at + RECORD_BYTES] for at in range(0, len(page), RECORD_BYTES)]
    return records


def check_page(page: object) -> bytes:
    if not isinstance(page, bytes) or not page or len(page) % RECORD_BYTES:
        raise Corrupt("ENG-004", "a page of claims was damaged", "run holdfast db rebuild")
    return page


def make_pages(records: Sequence[bytes]) -> Iterator[ClaimPage]:
    """Sorted records as the pages of one run."""
    for at in range(0, len(records), RECORDS_PER_PAGE):
        yield records[at][:ID_BYTES], b"".join(records[at : at + RECORDS_PER_PAGE])


def page_prefixes(page: bytes) -> list[int]:
    """The first 8 bytes of every claim id, as numbers."""
    return [prefix for (prefix,) in _PREFIXES.iter_unpack(check_page(page))]


def events_between(pages: Iterable[bytes], low: bytes, high: bytes) -> list[EventNo]:
    """The events of the claims in these pages whose id is from one to another."""
    found = [unpack_record(record) for record in split_pages(pages) if low <= record[:ID_BYTES] <= high]
    return [EventNo(event) for _, event, _, _ in found]


def find_by_key(keys: Sequence[bytes], records: Iterable[bytes]) -> dict[bytes, Claim]:
    """The claims of these keys among records that were found for them; of two of one key the later counts."""
    by_id = {claim_id(key): key for key in keys}
    found: dict[bytes, Claim] = {}
    for record in sorted(records, key=lambda record: record[ID_BYTES:]):
        id_, event, checksum, until_ms = unpack_record(record)
        if (key := by_id.get(id_)) is not None:
            found[key] = Claim(event, checksum, until_ms)  # type: ignore[arg-type]
    return found
