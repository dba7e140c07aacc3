"""Tables, files and a clock in memory, beside the real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim, claim_id, claim_number
from holdfast.core.tables import TABLES
from holdfast.ports import CLAIMS, Chunk, FoundClaims, Row, RowPage, is_row_deleted

FIELDS = {name: (*table.columns, *table.packed) for name, table in TABLES.items()}


def _is_match(found: Any, name: str, value: Any) -> bool:
    return bool(found >= value) if name.endswith(">=") else bool(found == value)


class SimulatedTables:
    """What the projection means, with dictionaries."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[object, Row]] = {table: {} for table in FIELDS}
        self.claims: dict[bytes, Claim] = {}
        self.at = JournalHead()
        self.writes = 0
        self.write_faults = 0
        """How many writes fail from now on."""

    async def open(self) -> JournalHead:
        return self.at

    async def checkpoint(self) -> JournalHead:
        return self.at

    async def release(self) -> None:
        pass

    async def write(
        self,
        rows: Mapping[str, Sequence[Row]],
        claims: Sequence[tuple[bytes, Claim]],
        checkpoint: JournalHead,
        after: JournalHead | None = None,
    ) -> None:
        if after is not None and self.at != after:
            raise Unavailable("ENG-004", f"simulated: the tables are at batch {self.at.number}, not {after.number}")
        if self.write_faults:
            self.write_faults -= 1
            raise Unavailable("ENG-004", "simulated: tables cannot be written")
        self.writes += 1
        for table, lines in rows.items():
            for row in lines:
                if is_row_deleted(row):
                    self.rows[table].pop(row[0], None)
                else:
                    self.rows[table][row[0]] = self._with_kept(table, row)
        self.claims.update(claims)
        self.at = checkpoint

    def _with_kept(self, table: str, row: Row) -> Row:
        """A packed column that is null stays as it is."""
        old, count = self.rows[table].get(row[0]), len(TABLES[table].columns)
        kept = old[count:] if old is not None else (None,) * len(row[count:])
        return (*row[:count], *(b if a is None else a for a, b in zip(row[count:], kept, strict=True)))

    async def drop(self) -> None:
        self.rows = {table: {} for table in FIELDS}
        self.claims, self.at = {}, JournalHead()

    async def get(self, table: str, key: object) -> tuple[Row | None, EventNo]:
        return self.rows[table].get(key), self.at.last

    async def page(
        self, table: str, match: Mapping[str, object], after: object, limit: int, *, is_newest_first: bool = False
    ) -> RowPage:
        at = [(FIELDS[table].index(name.removesuffix(">=")), name, value) for name, value in match.items()]
        keys = sorted(key for key in self.rows[table] if (key < after if is_newest_first else key > after))  # type: ignore[operator, type-var]
        if is_newest_first:
            keys.reverse()
        rows = [self.rows[table][key] for key in keys]
        found = [row for row in rows if all(_is_match(row[i], name, value) for i, name, value in at)]
        return found[:limit], self.at.last

    async def find(self, table: str, column: str, values: Sequence[object]) -> list[Row]:
        at = FIELDS[table].index(column)
        return [row for value in values for row in self.rows[table].values() if row[at] == value]

    async def claim_keys(self) -> AsyncIterator[Sequence[int]]:
        yield [claim_number(key) for key in self.claims]

    async def find_claims(self, keys: Sequence[bytes]) -> FoundClaims:
        return FoundClaims({key: self.claims[key] for key in keys if key in self.claims}, self.at)

    async def find_claim_events(self, low: bytes, high: bytes, limit: int) -> list[EventNo]:
        found = [claim.event for key, claim in self.claims.items() if low <= claim_id(key) <= high]
        return found[:limit]

    async def dump(self) -> AsyncIterator[Chunk]:
        at, rows = self.at, {table: list(lines.values()) for table, lines in self.rows.items()}
        rows[CLAIMS] = [
            (claim_id(key), claim.event, claim.checksum, claim.until_ms)
            for key, claim in self.claims.items()
            if not claim.until_ms or claim.until_ms > at.time_ms
        ]
        for table, lines in rows.items():
            if lines or table == CLAIMS:
                yield at, table, lines

    async def faults(self) -> list[str]:
        return []

    async def close(self) -> None:
        pass
