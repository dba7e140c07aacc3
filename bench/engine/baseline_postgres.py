"""The baseline on PostgreSQL: what one would write by hand with asyncpg, one round trip per command or per chunk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
from tests.postgres.server import Address

SCHEMA: Final = """
CREATE TABLE account (owner text PRIMARY KEY, available bigint NOT NULL, held bigint NOT NULL, pending bigint NOT NULL)
    WITH (fillfactor = 50);
CREATE TABLE hold (id bytea PRIMARY KEY, event bigint NOT NULL, owner text NOT NULL, amount bigint NOT NULL,
    status text NOT NULL, charged bigint NOT NULL, payee text, height bigint, settled bigint) WITH (fillfactor = 80);
CREATE INDEX hold_by_owner ON hold (owner, event);
CREATE TABLE event (number bigint PRIMARY KEY, time_ms bigint NOT NULL, kind int NOT NULL, hold bytea NOT NULL,
    account text NOT NULL, amount bigint NOT NULL, height bigint);
INSERT INTO account VALUES ('alice', 1000000000000, 0, 0), ('bob', 0, 0, 0);
"""
RESERVE: Final = """
WITH taken AS (
    UPDATE account SET available = available - $5, held = held + $5 WHERE owner = $4 AND available >= $5 RETURNING owner
), made AS (
    INSERT INTO hold SELECT $1, $2, owner, $5, 'HELD', 0, NULL, NULL, NULL FROM taken RETURNING owner
)
INSERT INTO event SELECT $2, $3, 17, $1, owner, $5, NULL FROM made
"""
CHARGE: Final = """
WITH settled AS (
    UPDATE hold SET status = 'CHARGED', charged = $5, payee = $4, height = $6, settled = $2
    WHERE id = $1 AND status = 'HELD' AND amount >= $5 RETURNING owner, amount
), given AS (
    UPDATE account SET held = held - amount, pending = pending + amount - $5 FROM settled
    WHERE account.owner = settled.owner RETURNING 1
), paid AS (
    UPDATE account SET pending = pending + $5 FROM given WHERE account.owner = $4 RETURNING 1
)
INSERT INTO event SELECT $2, $3, 18, $1, $4, $5, $6 FROM paid
"""
RESERVE_ALL: Final = (
    "UPDATE account SET available = available - $1, held = held + $1 WHERE owner = $2 AND available >= $1"
)
SETTLE_ALL: Final = """
UPDATE hold SET status = 'CHARGED', charged = 3, payee = 'bob', height = 1, settled = given.settled
FROM unnest($1::bytea[], $2::bigint[]) AS given (id, settled) WHERE hold.id = given.id AND status = 'HELD'
"""
PAY_ALL: Final = "UPDATE account SET held = held - $1, pending = pending + $2 WHERE owner = $3"


class PostgresBaseline:
    """Balances, reservations and events as rows: one prepared statement per command, chunks by COPY and unnest."""

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._last = 0

    @classmethod
    async def open(cls, address: Address) -> PostgresBaseline:
        settings = {"search_path": address.schema, "jit": "off"}
        connection = await asyncpg.connect(address.dsn, server_settings=settings)
        await connection.execute(f"CREATE SCHEMA {address.schema}")
        await connection.execute(SCHEMA)
        return cls(connection)

    async def run(self, ids: Sequence[bytes], size: int) -> float:
        """A chunk is pipelined: all its statements are sent before the first answer is awaited."""
        began = time.perf_counter()
        for at in range(0, len(ids), size):
            chunk = ids[at : at + size]
            now = time.time_ns() // 1_000_000
            for sql, rest in ((RESERVE, ("alice", 5)), (CHARGE, ("bob", 3, 1))):
                values = [(id_, self._last + n, now, *rest) for n, id_ in enumerate(chunk, 1)]
                if size == 1:
                    done = await self._db.execute(sql, *values[0])
                    assert done == "INSERT 0 1", done
                else:
                    await self._db.executemany(sql, values)
                self._last += len(chunk)
        took = time.perf_counter() - began
        assert await self._db.fetchval("SELECT count(*) FROM event") == self._last
        return 2 * len(ids) / took

    async def run_all_or_nothing(self, ids: Sequence[bytes], size: int) -> float:
        began = time.perf_counter()
        for at in range(0, len(ids), size):
            chunk = ids[at : at + size]
            many, now = len(chunk), time.time_ns() // 1_000_000
            async with self._db.transaction():
                assert await self._db.execute(RESERVE_ALL, 5 * many, "alice") == "UPDATE 1"
                first = self._last + 1
                rows = [(id_, first + n, "alice", 5, "HELD", 0, None, None, None) for n, id_ in enumerate(chunk)]
                await self._db.copy_records_to_table("hold", records=rows)
                await self._insert_events(chunk, now, 17, "alice", 5, None)
            async with self._db.transaction():
                numbers = list(range(self._last + 1, self._last + 1 + many))
                assert await self._db.execute(SETTLE_ALL, chunk, numbers) == f"UPDATE {many}"
                await self._db.execute(PAY_ALL, 5 * many, 2 * many, "alice")
                await self._db.execute(PAY_ALL, 0, 3 * many, "bob")
                await self._insert_events(chunk, now, 18, "bob", 3, 1)
        return 2 * len(ids) / (time.perf_counter() - began)

    async def close(self) -> None:
        await self._db.close()

    async def _insert_events(
        self, ids: Sequence[bytes], now: int, kind: int, who: str, amount: int, height: int | None
    ) -> None:
        rows = [(self._last + n, now, kind, id_, who, amount, height) for n, id_ in enumerate(ids, 1)]
        await self._db.copy_records_to_table("event", records=rows)
        self._last += len(ids)
