"""Resolving results as one would write it for the purpose: rows of results, jobs, leases, money and blocks in SQL."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import apsw
from tests.postgres.server import Address

FEE, PAID = 100, 6
SCHEMA: Final = """
CREATE TABLE account (owner TEXT PRIMARY KEY, held {int} NOT NULL, pending {int} NOT NULL);
CREATE TABLE job (id {bytes} PRIMARY KEY, state TEXT NOT NULL, spec {bytes} NOT NULL, ended_ms {int});
CREATE TABLE lease (id {bytes} PRIMARY KEY, job {bytes} NOT NULL, status TEXT NOT NULL);
CREATE TABLE result (task {bytes} PRIMARY KEY, nullifier {bytes} NOT NULL UNIQUE, digest {bytes} NOT NULL,
    size {int} NOT NULL, height {int} NOT NULL, charged {int} NOT NULL, provider TEXT NOT NULL);
CREATE INDEX result_in_block ON result (height);
CREATE TABLE event (number {int} PRIMARY KEY, time_ms {int} NOT NULL, kind {int} NOT NULL, job {bytes} NOT NULL);
CREATE TABLE block (height {int} PRIMARY KEY, time_ms {int} NOT NULL, results {int} NOT NULL);
INSERT INTO account VALUES ('alice', 0, 0), ('oak', 0, 0);
"""
SPEC: Final = b'{"model":"echo","prompt":"hello"}'
_DONE = "UPDATE job SET state = 'COMPLETED', ended_ms = {} WHERE {} AND state = 'ASSIGNED'"
_OVER = "UPDATE lease SET status = 'COMPLETED' WHERE {} AND status = 'ACTIVE'"
_MOVE = "UPDATE account SET held = held + {}, pending = pending + {} WHERE owner = {}"


class BaselineResults(Protocol):
    """Jobs that wait for their proof, and a chunk of them resolved in one transaction and a block in another."""

    async def wait(self, ids: Sequence[bytes]) -> None: ...
    async def resolve(self, ids: Sequence[bytes]) -> None: ...
    async def close(self) -> None: ...


async def resolve_all(hand: BaselineResults, many: int, size: int) -> float:
    """Results a second; that jobs wait for them is made ready before the clock runs."""
    ids = [os.urandom(32) for _ in range(many)]
    await hand.wait(ids)
    began = time.perf_counter()
    for at in range(0, many, size):
        await hand.resolve(ids[at : at + size])
    return many / (time.perf_counter() - began)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _derive_id(id_: bytes, by: int) -> bytes:
    """Another 32 bytes, as far from each other as hashes are."""
    return bytes(each ^ by for each in id_)


def _rows(ids: Sequence[bytes], height: int) -> list[tuple[object, ...]]:
    return [(id_, _derive_id(id_, 1), _derive_id(id_, 2), 3, height, PAID, "oak") for id_ in ids]


class SqliteBaselineResults:
    """Prepared statements through apsw, chunks by executemany; WAL, synchronous FULL."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._db = apsw.Connection(str(folder / "hand.db"))
        self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000")
        self._db.execute(SCHEMA.format(int="INTEGER", bytes="BLOB"))
        self._last = self._height = 0

    async def wait(self, ids: Sequence[bytes]) -> None:
        with self._db:
            self._db.execute(_MOVE.format("?1", "?2", "?3"), (FEE * len(ids), 0, "alice"))
            self._db.executemany("INSERT INTO job VALUES (?, 'ASSIGNED', ?, NULL)", [(id_, SPEC) for id_ in ids])
            leases = [(_derive_id(id_, 3), id_) for id_ in ids]
            self._db.executemany("INSERT INTO lease VALUES (?, ?, 'ACTIVE')", leases)

    async def resolve(self, ids: Sequence[bytes]) -> None:
        db, at_ms = self._db, _now_ms()
        self._height += 1
        with db:
            rows = _rows(ids, self._height)
            db.executemany("INSERT INTO result VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            db.executemany(_DONE.format("?1", "id = ?2"), [(at_ms, id_) for id_ in ids])
            db.executemany(_OVER.format("id = ?1"), [(_derive_id(id_, 3),) for id_ in ids])
            move = _MOVE.format("?1", "?2", "?3")
            db.execute(move, (-FEE * len(ids), (FEE - PAID) * len(ids), "alice"))
            db.execute(move, (0, PAID * len(ids), "oak"))
            told = [(self._last + n, at_ms, 90, id_) for n, id_ in enumerate(ids, start=1)]
            db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", told)
        self._last += len(ids)
        with db:
            db.execute("INSERT INTO block VALUES (?, ?, ?)", (self._height, at_ms, len(ids)))

    async def close(self) -> None:
        self._db.close()


class PostgresBaselineResults:
    """COPY for new rows, one UPDATE for all old ones: a chunk in a few round trips."""

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._last = self._height = 0

    @classmethod
    async def open(cls, address: Address) -> PostgresBaselineResults:
        import asyncpg  # noqa: PLC0415 - an extra

        settings = {"search_path": address.schema, "jit": "off"}
        connection = await asyncpg.connect(address.dsn, server_settings=settings)
        await connection.execute(f"CREATE SCHEMA {address.schema}")
        await connection.execute(SCHEMA.format(int="bigint", bytes="bytea"))
        return cls(connection)

    async def wait(self, ids: Sequence[bytes]) -> None:
        async with self._db.transaction():
            await self._db.execute(_MOVE.format("$1", "$2", "$3"), FEE * len(ids), 0, "alice")
            await self._db.copy_records_to_table("job", records=[(id_, "ASSIGNED", SPEC, None) for id_ in ids])
            leases = [(_derive_id(id_, 3), id_, "ACTIVE") for id_ in ids]
            await self._db.copy_records_to_table("lease", records=leases)

    async def resolve(self, ids: Sequence[bytes]) -> None:
        db, at_ms = self._db, _now_ms()
        self._height += 1
        async with db.transaction():
            await db.copy_records_to_table("result", records=_rows(ids, self._height))
            done = await db.execute(_DONE.format("$1", "id = ANY($2)"), at_ms, ids)
            over = await db.execute(_OVER.format("id = ANY($1)"), [_derive_id(id_, 3) for id_ in ids])
            assert done == over == f"UPDATE {len(ids)}"
            move = _MOVE.format("$1", "$2", "$3")
            await db.execute(move, -FEE * len(ids), (FEE - PAID) * len(ids), "alice")
            await db.execute(move, 0, PAID * len(ids), "oak")
            told = [(self._last + n, at_ms, 90, id_) for n, id_ in enumerate(ids, start=1)]
            await db.copy_records_to_table("event", records=told)
        self._last += len(ids)
        await db.execute("INSERT INTO block VALUES ($1, $2, $3)", self._height, at_ms, len(ids))

    async def close(self) -> None:
        await self._db.close()
