"""Claims as rows, the same on every store: the claim id as two integers, so that an index holds 8 bytes of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.index.unique_ids import Claim, claim_id

ClaimRow = tuple[int, int, int, int, int]
"""The first 8 bytes of the claim id, the last 8, event, checksum, until when it counts (0: for ever)."""


def split_id(key: bytes) -> tuple[int, int]:
    id_ = claim_id(key)
    return int.from_bytes(id_[:8], "big", signed=True), int.from_bytes(id_[8:], "big", signed=True)


def sorted_rows(claims: Iterable[tuple[bytes, Claim]]) -> list[ClaimRow]:
    """In the order of a sorted run."""
    return sorted((*split_id(key), claim.event, claim.checksum, claim.until_ms) for key, claim in claims)


def find_by_key(keys: Sequence[bytes], rows: Iterable[ClaimRow]) -> dict[bytes, Claim]:
    """The claims of these keys among rows that have their first integers; of two of one key the later counts."""
    by_id = {split_id(key): key for key in keys}
    found: dict[bytes, Claim] = {}
    for first, last, event, checksum, until_ms in sorted(rows, key=lambda row: row[2]):
        if (key := by_id.get((first, last))) is not None:
            found[key] = Claim(event, checksum, until_ms)  # type: ignore[arg-type]
    return found


def dump_row(row: Sequence[int]) -> tuple[object, ...]:
    """A claim as `Tables.dump` yields it: id, event, checksum, until."""
    first, last, *rest = row
    return (first.to_bytes(8, "big", signed=True) + last.to_bytes(8, "big", signed=True), *rest)
