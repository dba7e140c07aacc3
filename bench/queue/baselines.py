"""The queue's baseline: jobs, leases, events and money as rows, moved by SQL that one would write for the purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import apsw
from tests.postgres.server import Address

FEE, PAID, UNITS = 100, 6, 2
WAITS_MS, T_MS = 86_400_000, 600_000
PROVIDERS: Final = [f"provider-{n}" for n in range(4)]


class BaselineQueue(Protocol):
    """Four steps of many jobs at a time; a chunk is one transaction a step."""

    async def enqueue(self, ids: Sequence[bytes]) -> None: ...

    async def drain(self, size: int) -> int:
        """Assign, acknowledge and complete the first `size` jobs in order; how many there were."""
        ...

    async def close(self) -> None: ...


async def enqueue_all(hand: BaselineQueue, ids: Sequence[bytes], size: int) -> float:
    """Jobs taken in a second."""
    began = time.perf_counter()
    for chunk in split(ids, size):
        await hand.enqueue(chunk)
    return len(ids) / (time.perf_counter() - began)


async def drain_all(hand: BaselineQueue, size: int) -> float:
    """Waiting jobs brought to their end a second."""
    began, done = time.perf_counter(), 0
    while many := await hand.drain(size):
        done += many
    return done / (time.perf_counter() - began)


async def run_lives(hand: BaselineQueue, ids: Sequence[bytes], size: int) -> float:
    """Whole lives a second: each chunk is admitted and completed."""
    began = time.perf_counter()
    for chunk in split(ids, size):
        await hand.enqueue(chunk)
        assert await hand.drain(size) == len(chunk)
    return len(ids) / (time.perf_counter() - began)


def split(ids: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


SCHEMA: Final = """
CREATE TABLE account (owner TEXT PRIMARY KEY, available {int} NOT NULL, held {int} NOT NULL, pending {int} NOT NULL);
CREATE TABLE job (id {bytes} PRIMARY KEY, kind TEXT NOT NULL, caller TEXT NOT NULL, state TEXT NOT NULL,
    priority {int} NOT NULL, enqueue_ms {int} NOT NULL, expires_ms {int} NOT NULL, max_fee {int} NOT NULL,
    attempts {int} NOT NULL, spec {bytes} NOT NULL, digest {bytes}, charged {int}, ended_ms {int});
CREATE INDEX job_in_order ON job (priority DESC, enqueue_ms, id) WHERE state = 'QUEUED';
CREATE TABLE lease (id {bytes} PRIMARY KEY, job {bytes} NOT NULL, provider TEXT NOT NULL, attempt {int} NOT NULL,
    t_start {int} NOT NULL, t_deadline {int} NOT NULL, renew_by {int} NOT NULL, status TEXT NOT NULL, acked_ms {int});
CREATE TABLE event (number {int} PRIMARY KEY, time_ms {int} NOT NULL, kind {int} NOT NULL, job {bytes} NOT NULL,
    lease {bytes});
INSERT INTO account VALUES ('alice', 1000000000000, 0, 0), ('bob', 0, 0, 0);
"""
FIND: Final = "SELECT id FROM job WHERE state = 'QUEUED' ORDER BY priority DESC, enqueue_ms, id LIMIT "


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def job_row(id_: bytes, at_ms: int) -> tuple[object, ...]:
    spec = b'{"model":"echo","prompt":"hello"}'
    return (id_, "AI", "alice", "QUEUED", -at_ms, at_ms, at_ms + WAITS_MS, FEE, 0, spec, None, None, None)


def lease_row(job: bytes, lease: bytes, provider: str, at_ms: int) -> tuple[object, ...]:
    return (lease, job, provider, 0, at_ms, at_ms + T_MS, at_ms + T_MS * 6 // 10, "ACTIVE", None)


def event_rows(
    first: int, kind: int, jobs: Sequence[bytes], leases: Sequence[bytes] | None
) -> list[tuple[int, int, int, bytes, bytes | None]]:
    at_ms = now_ms()
    return [(first + n, at_ms, kind, job, leases[n] if leases else None) for n, job in enumerate(jobs)]


def lease_name(job: bytes) -> bytes:
    """Another 32 bytes, as far from each other as hashes are."""
    return bytes(255 - each for each in job)


class SqliteBaselineQueue:
    """Prepared statements through apsw; chunks by executemany, which is the best SQLite offers."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.db = apsw.Connection(str(folder / "hand.db"))
        self.db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000")
        self.db.execute(SCHEMA.format(int="INTEGER", bytes="BLOB"))
        self._last = 0

    async def enqueue(self, ids: Sequence[bytes]) -> None:
        at_ms = now_ms()
        with self.db:
            take = (
                "UPDATE account SET available = available - ?1, held = held + ?1 WHERE owner = ?2 AND available >= ?1"
            )
            self.db.execute(take, (FEE * len(ids), "alice"))
            self.db.executemany(f"INSERT INTO job VALUES ({_placeholders(13)})", [job_row(id_, at_ms) for id_ in ids])
            self._insert_events(50, ids, None)

    async def drain(self, size: int) -> int:
        jobs = [row[0] for row in self.db.execute(FIND + str(size))]
        if not jobs:
            return 0
        leases = [lease_name(job) for job in jobs]
        at_ms = now_ms()
        with self.db:
            rows = [lease_row(*pair, PROVIDERS[n % 4], at_ms) for n, pair in enumerate(zip(jobs, leases, strict=True))]
            given = "UPDATE job SET state = 'ASSIGNED', attempts = attempts + 1 WHERE id = ? AND state = 'QUEUED'"
            self.db.executemany(given, [(job,) for job in jobs])
            self.db.executemany(f"INSERT INTO lease VALUES ({_placeholders(9)})", rows)
            self._insert_events(80, jobs, leases)
        with self.db:
            self.db.executemany("UPDATE lease SET acked_ms = ? WHERE id = ?", [(at_ms, lease) for lease in leases])
            self._insert_events(81, jobs, leases)
        with self.db:
            done = "UPDATE lease SET status = 'COMPLETED' WHERE id = ? AND status = 'ACTIVE'"
            self.db.executemany(done, [(lease,) for lease in leases])
            end = "state = 'COMPLETED', digest = ?1, charged = ?2, ended_ms = ?3 WHERE id = ?1 AND state = 'ASSIGNED'"
            self.db.executemany(f"UPDATE job SET {end}", [(job, PAID, at_ms) for job in jobs])
            give = "UPDATE account SET held = held - ?1, pending = pending + ?2 WHERE owner = ?3"
            self.db.execute(give, (FEE * len(jobs), (FEE - PAID) * len(jobs), "alice"))
            self.db.execute(give, (0, PAID * len(jobs), "bob"))
            self._insert_events(90, jobs, leases)
        return len(jobs)

    async def close(self) -> None:
        self.db.close()

    def _insert_events(self, kind: int, jobs: Sequence[bytes], leases: Sequence[bytes] | None) -> None:
        rows = event_rows(self._last + 1, kind, jobs, leases)
        self.db.executemany(f"INSERT INTO event VALUES ({_placeholders(5)})", rows)
        self._last += len(jobs)


def _placeholders(count: int) -> str:
    return ", ".join("?" * count)


class PostgresBaselineQueue:
    """COPY for new rows and one UPDATE from `unnest` for old ones: a chunk in a few round trips."""

    def __init__(self, connection: Any) -> None:
        self._db = connection
        self._last = 0

    @classmethod
    async def open(cls, address: Address) -> PostgresBaselineQueue:
        import asyncpg  # noqa: PLC0415 - an extra

        settings = {"search_path": address.schema, "jit": "off"}
        connection = await asyncpg.connect(address.dsn, server_settings=settings)
        await connection.execute(f"CREATE SCHEMA {address.schema}")
        await connection.execute(SCHEMA.format(int="bigint", bytes="bytea"))
        return cls(connection)

    async def enqueue(self, ids: Sequence[bytes]) -> None:
        at_ms = now_ms()
        async with self._db.transaction():
            await self._update_account("alice", -FEE * len(ids), FEE * len(ids), 0)
            await self._db.copy_records_to_table("job", records=[job_row(id_, at_ms) for id_ in ids])
            await self._insert_events(50, ids, None)

    async def drain(self, size: int) -> int:
        jobs = [row[0] for row in await self._db.fetch(FIND + str(size))]
        if not jobs:
            return 0
        leases = [lease_name(job) for job in jobs]
        at_ms = now_ms()
        async with self._db.transaction():
            rows = [lease_row(*pair, PROVIDERS[n % 4], at_ms) for n, pair in enumerate(zip(jobs, leases, strict=True))]
            given = "UPDATE job SET state = 'ASSIGNED', attempts = attempts + 1 WHERE id = ANY($1) AND state = 'QUEUED'"
            assert await self._db.execute(given, jobs) == f"UPDATE {len(jobs)}"
            await self._db.copy_records_to_table("lease", records=rows)
            await self._insert_events(80, jobs, leases)
        async with self._db.transaction():
            await self._db.execute("UPDATE lease SET acked_ms = $2 WHERE id = ANY($1)", leases, at_ms)
            await self._insert_events(81, jobs, leases)
        async with self._db.transaction():
            done = "UPDATE lease SET status = 'COMPLETED' WHERE id = ANY($1) AND status = 'ACTIVE'"
            assert await self._db.execute(done, leases) == f"UPDATE {len(leases)}"
            end = "digest = id, charged = $2, ended_ms = $3 WHERE id = ANY($1) AND state = 'ASSIGNED'"
            assert (
                await self._db.execute(f"UPDATE job SET state = 'COMPLETED', {end}", jobs, PAID, at_ms)
                == f"UPDATE {len(jobs)}"
            )
            await self._update_account("alice", 0, -FEE * len(jobs), (FEE - PAID) * len(jobs))
            await self._update_account("bob", 0, 0, PAID * len(jobs))
            await self._insert_events(90, jobs, leases)
        return len(jobs)

    async def close(self) -> None:
        await self._db.close()

    async def _update_account(self, owner: str, available: int, held: int, pending: int) -> None:
        move = (
            "UPDATE account SET available = available + $2, held = held + $3, pending = pending + $4 "
            "WHERE owner = $1 AND available + $2 >= 0"
        )
        assert await self._db.execute(move, owner, available, held, pending) == "UPDATE 1"

    async def _insert_events(self, kind: int, jobs: Sequence[bytes], leases: Sequence[bytes] | None) -> None:
        rows = event_rows(self._last + 1, kind, jobs, leases)
        await self._db.copy_records_to_table("event", records=rows)
        self._last += len(jobs)
