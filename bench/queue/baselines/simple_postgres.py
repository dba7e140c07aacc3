"""The simple baseline on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.postgres.server import Address

from bench.queue.baselines.contract import FEE, PAID, PROVIDERS, now_ms
from bench.queue.baselines.simple import FIND, SCHEMA, event_rows, job_row, lease_name, lease_row


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
