"""Many rows at once: COPY into a table of the session and from there over the old rows; claims as sorted lots."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.sql.lots import Lot, lots_to_merge
from holdfast.adapters.sql.shape import KEYS, replacing
from holdfast.adapters.sql.statements import postgres_queries
from holdfast.core.claim import Claim
from holdfast.ports import Row, is_gone

_SQL: Final = postgres_queries("tables")
_PIECE: Final = 2_048
"""Rows encoded at a stretch: the event loop has others to serve."""


async def put_rows(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    """Replace rows by their first column, delete those that are gone; of two with one key the later counts."""
    latest = {row[0]: row for row in rows}.values()
    if there := [row for row in latest if not is_gone(row)]:
        incoming = f"incoming_{table}"
        await connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {incoming} (LIKE {table}) ON COMMIT DELETE ROWS"
        )
        await _copy(connection, incoming, there)
        await connection.execute(f"INSERT INTO {table} SELECT * FROM {incoming} {replacing(table)}")  # noqa: S608
    dead = [row[0] for row in latest if is_gone(row)]
    for start in range(0, len(dead), _PIECE):
        keys = dead[start : start + _PIECE]
        await connection.execute(f"DELETE FROM {table} WHERE {KEYS[table]} = ANY ($1)", keys)  # noqa: S608 - our own names


async def add_lot(connection: Connection, claims: Sequence[tuple[bytes, Claim]]) -> None:
    """Write one sorted lot; where that makes too many lots of about one size, join them."""
    number: int = await connection.fetchval(_SQL["next_lot"])
    ordered = sorted(claims, key=itemgetter(0))
    await _copy(connection, "claim", [(number, key, each.event, each.checksum) for key, each in ordered])
    await connection.execute(_SQL["put_lot"], number, len(claims))
    while alike := lots_to_merge(await all_lots(connection)):
        number += 1
        merged = [lot for lot, _ in alike]
        await connection.execute(_SQL["merge_lot"], number, merged)
        await connection.execute(_SQL["put_lot"], number, sum(size for _, size in alike))
        await connection.execute(_SQL["drop_lot_claims"], merged)
        await connection.execute(_SQL["drop_lot"], merged)


async def all_lots(connection: Connection) -> list[Lot]:
    return [(number, size) for number, size in await connection.fetch(_SQL["lots"])]


async def _copy(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    for start in range(0, len(rows), _PIECE):
        await connection.copy_records_to_table(table, records=rows[start : start + _PIECE])
