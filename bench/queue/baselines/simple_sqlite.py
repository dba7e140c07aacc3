"""The simple baseline on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from bench.queue.baselines.contract import FEE, PAID, PROVIDERS, now_ms
from bench.queue.baselines.simple import FIND, SCHEMA, event_rows, job_row, lease_name, lease_row, placeholders


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
            self.db.executemany(f"INSERT INTO job VALUES ({placeholders(13)})", [job_row(id_, at_ms) for id_ in ids])
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
            self.db.executemany(f"INSERT INTO lease VALUES ({placeholders(9)})", rows)
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
        self.db.executemany(f"INSERT INTO event VALUES ({placeholders(5)})", rows)
        self._last += len(jobs)
