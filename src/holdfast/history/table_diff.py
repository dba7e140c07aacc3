"""The tables compared with the fold, row by row; of each expected row only a short fingerprint is kept."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.core.index.unique_ids import claim_id
from holdfast.core.tables import TABLES
from holdfast.engine.projection.changed_rows import Claimed, Rows
from holdfast.ports import CLAIMS, Row, is_row_deleted

NAMED_MAX: Final = 3
"""How many wrong rows are named; the rest is counted."""
_pack = msgspec.msgpack.Encoder().encode


class NameSample(msgspec.Struct):
    """Faults of one kind: the names of the first few, and their number."""

    first: list[str] = []
    count: int = 0

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < NAMED_MAX:
            self.first.append(name)

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(self.first) + more


class ExpectedTables:
    """The rows and claims of the fold so far, and how a dump of the tables differs from them."""

    def __init__(self) -> None:
        self._prints: dict[str, dict[object, int]] = {CLAIMS: {}}
        self._until_ms: dict[object, int] = {}
        """Of claims that count for a while (JOB-002)."""
        self.claimed_twice, self.extra, self.different = NameSample(), NameSample(), NameSample()
        self.rows_compared = 0

    def add_batch(self, rows: Rows, claimed: Claimed) -> None:
        """Add what a batch changed. A claim is made once in all of history (ENG-005)."""
        for table, changed in rows.items():
            prints = self._prints.setdefault(table, {})
            for row in changed:
                if is_row_deleted(row):
                    for part in _parts_of(table):
                        self._prints.setdefault(part, {}).pop(row[0], None)
                    continue
                record, packed = _split(table, row)
                prints[row[0]] = fingerprint(record)
                for part, raw in packed:
                    self._prints.setdefault(part, {})[row[0]] = fingerprint((raw,))
        claims = self._prints[CLAIMS]
        for key, claim in claimed:
            id_ = claim_id(key)
            if id_ in claims and not claim.until_ms:
                self.claimed_twice.add(f"claim {chr(key[0])}:{key[1:].hex()} at event {claim.event}")
            row = (id_, claim.event, claim.checksum, claim.until_ms)
            claims[claim_key(row)] = fingerprint(row)
            if claim.until_ms:
                self._until_ms[claim_key(row)] = claim.until_ms

    def drop_expired_claims(self, now_ms: int) -> None:
        """Claims that have expired leave the tables (ENG-005); a dump has none of them."""
        for key in [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]:
            del self._until_ms[key]
            self._prints[CLAIMS].pop(key, None)

    def compare(self, table: str, rows: Iterable[Row]) -> None:
        """Compare rows of the tables with the expected ones."""
        for row in rows:
            self.rows_compared += 1
            record, packed = _split(table, row)
            self._compare(table, claim_key(row) if table == CLAIMS else row[0], record)
            for part, raw in packed:
                self._compare(part, row[0], (raw,))

    def _compare(self, table: str, key: object, row: Row) -> None:
        expected = self._prints.setdefault(table, {}).pop(key, None)
        if expected is None:
            self.extra.add(_name(table, row[0] if table == CLAIMS else key))
        elif expected != fingerprint(row):
            self.different.add(_name(table, row[0] if table == CLAIMS else key))

    def missing(self) -> NameSample:
        """Expected rows that were in no dump."""
        names = NameSample()
        for table, prints in self._prints.items():
            for key in prints:
                names.add(_name(table, key))
        return names


def _parts_of(table: str) -> tuple[str, ...]:
    """A table and, compared apart from it, its packed columns: a write may leave those as they are."""
    packed = TABLES[table].packed if table in TABLES else ()
    return (table, *(f"{table}.{column}" for column in packed))


def _split(table: str, row: Row) -> tuple[Row, list[tuple[str, object]]]:
    """The columns of the record, and the packed ones that are not null."""
    _, *packed = _parts_of(table)
    record = row[: len(row) - len(packed)]
    return record, [each for each in zip(packed, row[len(record) :], strict=True) if each[1] is not None]


def claim_key(row: Row) -> object:
    """A claim that counts for a while may be followed by another one of the same id."""
    id_, event, _, until_ms = row
    return (id_, event) if until_ms else id_


def fingerprint(row: Row) -> int:
    """Eight bytes that two different rows are unlikely to share."""
    stored = [int(value) if value is True or value is False else value for value in row]  # a column has numbers only
    return int.from_bytes(blake2b(_pack(stored), digest_size=8).digest(), "big")


def _name(table: str, key: object) -> str:
    if not isinstance(key, bytes):
        return f"{table} {key}"
    return f"{table} {key.hex()}"
