"""SQL with the same promises, on PostgreSQL: COPY for new rows, `unnest` and ANY where each row may be refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.postgres.server import Address

from bench.queue.baselines import promises
from bench.queue.baselines.contract import FEE, PAID, now_ms
from bench.queue.baselines.promised_ledger import PromisedLedger, claims_of, nullifiers, with_claim
from bench.queue.baselines.promises import EventRow, JobRef, Refusal

CLAIM = "INSERT INTO claim SELECT key, $2 FROM unnest($1::bytea[]) AS key ON CONFLICT DO NOTHING RETURNING key"
MOVE = (
    "UPDATE account SET available = available + $2, held = held + $3, pending = pending + $4 "
    "WHERE owner = $1 AND available + $2 >= 0"
)
GRANT = (
    "UPDATE job SET state = 'ASSIGNED', attempts = attempts + 1 "
    "WHERE number = ANY($1) AND state = 'QUEUED' RETURNING number"
)
ACK = "UPDATE lease SET acked_ms = $2 WHERE number = ANY($1) AND status = 'ACTIVE' RETURNING number"
CLOSE = "UPDATE lease SET status = 'COMPLETED' WHERE number = ANY($1) AND status = 'ACTIVE' RETURNING job"
END = "UPDATE job SET state = 'COMPLETED', digest = $2, charged = $3, ended_ms = $4 WHERE number = ANY($1)"
EVENTS = "SELECT number, time_ms, kind, job, body FROM event WHERE number > $1 ORDER BY number"
NEWEST = "SELECT height + 1, hash, last_event + 1 FROM block ORDER BY height DESC LIMIT 1"


class PromisedPostgresQueue:
    """One writer on one connection, whose statements are prepared once; memory is as on SQLite."""

    def __init__(self, connection: Any, ledger: PromisedLedger) -> None:
        self.db, self._ledger = connection, ledger

    @classmethod
    async def open(cls, address: Address, funds: int = promises.FUNDS) -> PromisedPostgresQueue:
        import asyncpg  # noqa: PLC0415 - an extra

        settings = {"search_path": address.schema, "jit": "off"}
        connection = await asyncpg.connect(address.dsn, server_settings=settings)
        if await connection.fetchval("SELECT to_regnamespace($1)", address.schema) is None:
            await connection.execute(f"CREATE SCHEMA {address.schema}")
            await connection.execute(promises.SCHEMA.format(int="bigint", bytes="bytea", keyed="", funds=funds))
        return cls(connection, await _load(connection))

    async def events_after(self, cursor: int) -> list[EventRow]:
        """What a follower resumes with."""
        return [tuple(row) for row in await self.db.fetch(EVENTS, cursor)]

    async def enqueue(self, txs: Sequence[bytes]) -> list[Refusal]:
        """Those that were refused; all others are durable."""
        ledger, at_ms = self._ledger, now_ms()
        ids = ledger.ids_of(txs)
        async with self._transaction():
            made = ledger.admit(txs, ids, await self._claim(ids), at_ms)
            if made.unused:
                await self.db.execute("DELETE FROM claim WHERE key = ANY($1)", made.unused)
            fees = FEE * len(made.jobs)
            await self.db.execute(MOVE, promises.CALLER, -fees, fees, 0)
            await self.db.copy_records_to_table("job", records=made.jobs)
            await self._insert_events(made.events)
        return made.refusals

    async def drain(self, size: int) -> int:
        """Assign, acknowledge and complete the first jobs in order; a block is sealed with the last step."""
        jobs = [JobRef(*row) for row in await self.db.fetch(promises.FIND.format(size=size))]
        if not jobs:
            return 0
        async with self._transaction():
            granted = await self._accepted(GRANT, [job.number for job in jobs])
            assigned = self._ledger.assign(jobs, granted, now_ms())
            await self.db.copy_records_to_table("lease", records=assigned.leases)
            await self._insert_events(assigned.events)
        async with self._transaction():
            at_ms = now_ms()
            known = await self._accepted(ACK, [job.lease for job in assigned.jobs], at_ms)
            await self._insert_events(self._ledger.ack(assigned.jobs, known, at_ms))
        return await self._complete(assigned.jobs)

    async def _complete(self, jobs: Sequence[JobRef]) -> int:
        ledger, at_ms, used = self._ledger, now_ms(), nullifiers(jobs)
        async with self._transaction():
            proven = with_claim(jobs, used, await self._claim(used))
            closed = await self._accepted(CLOSE, [job.lease for job, _ in proven])
            made = ledger.complete(proven, closed, at_ms)
            count = len(made.ends)
            await self.db.execute(END, [end[0] for end in made.ends], promises.RESULT, PAID, at_ms)
            await self.db.execute(MOVE, promises.CALLER, 0, -FEE * count, (FEE - PAID) * count)
            await self.db.execute(MOVE, "bob", 0, 0, PAID * count)
            await self._insert_events(made.events)
            await self.db.copy_records_to_table("block", records=[ledger.seal(at_ms)])
        return count

    async def close(self) -> None:
        await self.db.close()

    # ------------------------------------------------------------------------------------ pieces

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        """All or nothing, memory included."""
        try:
            async with self.db.transaction():
                yield
        except BaseException:
            self._ledger = await _load(self.db)
            raise

    async def _claim(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those that nobody had."""
        return await self._accepted(CLAIM, claims_of(hashes), self._ledger.next_event)

    async def _accepted(self, statement: str, *values: object) -> set[Any]:
        return {row[0] for row in await self.db.fetch(statement, *values)}

    async def _insert_events(self, events: Sequence[EventRow]) -> None:
        await self.db.copy_records_to_table("event", records=events)


async def _load(connection: Any) -> PromisedLedger:
    last = await connection.fetchval("SELECT coalesce(max(number), 0) FROM event")
    balance = await connection.fetchval("SELECT available FROM account WHERE owner = $1", promises.CALLER)
    row = await connection.fetchrow(NEWEST)
    since = await connection.fetch(EVENTS, row[2] - 1 if row else 0)
    return PromisedLedger(last, balance, tuple(row) if row else None, [tuple(each) for each in since])
