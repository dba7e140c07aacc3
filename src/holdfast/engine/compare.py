"""Tables against the fold, row by row: of each row that should be there only a short fingerprint is kept."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.engine.project import Images
from holdfast.ports import CLAIMS, Row, is_gone

NAMED_MAX: Final = 3
"""How many of many wrong rows are named; the rest is counted."""
_pack = msgspec.msgpack.Encoder().encode


class Names(msgspec.Struct):
    """What is wrong in one way: the first few by name, and how many there are."""

    first: list[str] = []
    count: int = 0

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.first) < NAMED_MAX:
            self.first.append(name)

    def __str__(self) -> str:
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return ", ".join(self.first) + more


class Expected:
    """The rows and claims that the fold has made so far; then what a dump of the tables says instead."""

    def __init__(self) -> None:
        self._prints: dict[str, dict[object, int]] = {CLAIMS: {}}
        self.twice, self.extra, self.different = Names(), Names(), Names()
        self.rows = 0

    def take(self, images: Images) -> None:
        """What a batch changed. A claim is made once in all of history (ENG-005)."""
        for (table, key), row in images.rows.items():
            prints = self._prints.setdefault(table, {})
            if is_gone(row):
                prints.pop(key, None)
            else:
                prints[key] = fingerprint(row)
        claims = self._prints[CLAIMS]
        for key, claim in images.claims:
            if key in claims:
                self.twice.add(f"{_name(CLAIMS, key)} at event {claim.event}")
            claims[key] = fingerprint((key, claim.event, claim.checksum))

    def compare(self, table: str, rows: Iterable[Row]) -> None:
        """Rows that the tables hold: each is expected once, as it is."""
        prints = self._prints.setdefault(table, {})
        for row in rows:
            self.rows += 1
            wanted = prints.pop(row[0], None)
            if wanted is None:
                self.extra.add(_name(table, row[0]))
            elif wanted != fingerprint(row):
                self.different.add(_name(table, row[0]))

    def missing(self) -> Names:
        """Rows that were expected and that no dump has shown."""
        names = Names()
        for table, prints in self._prints.items():
            for key in prints:
                names.add(_name(table, key))
        return names


def fingerprint(row: Row) -> int:
    """Eight bytes that two different rows hardly share."""
    return int.from_bytes(blake2b(_pack(row), digest_size=8).digest(), "big")


def _name(table: str, key: object) -> str:
    if isinstance(key, bytes):
        return (
            f"{table} {chr(key[0])}:{key[1:].hex()}"
            if table == CLAIMS and key[:1].isalpha()
            else f"{table} {key.hex()}"
        )
    return f"{table} {key}"
