"""SQL with the same promises, on SQLite: prepared statements by executemany, one transaction a step of a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from bench.queue.baselines import promises
from bench.queue.baselines.contract import FEE, PAID, now_ms
from bench.queue.baselines.promised_ledger import PromisedLedger, claims_of, nullifiers, with_claim
from bench.queue.baselines.promises import EventRow, JobRef, Refusal
from bench.queue.baselines.simple import placeholders

CLAIM = "INSERT INTO claim VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING key"
TAKE = "UPDATE account SET available = available - ?1, held = held + ?1 WHERE owner = ?2"
GIVE = "UPDATE account SET held = held - ?1, pending = pending + ?2 WHERE owner = ?3"
GRANT = (
    "UPDATE job SET state = 'ASSIGNED', attempts = attempts + 1 WHERE number = ? AND state = 'QUEUED' RETURNING number"
)
ACK = "UPDATE lease SET acked_ms = ? WHERE number = ? AND status = 'ACTIVE' RETURNING number"
CLOSE = "UPDATE lease SET status = 'COMPLETED' WHERE number = ? AND status = 'ACTIVE' RETURNING job"
END = "UPDATE job SET state = 'COMPLETED', digest = ?2, charged = ?3, ended_ms = ?4 WHERE number = ?1"
EVENTS = "SELECT number, time_ms, kind, job, body FROM event WHERE number > ? ORDER BY number"
NEWEST = "SELECT height + 1, hash, last_event + 1 FROM block ORDER BY height DESC LIMIT 1"


class PromisedSqliteQueue:
    """One writer; what it keeps in memory, rows and events give again."""

    def __init__(self, folder: Path, funds: int = promises.FUNDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.db = apsw.Connection(str(folder / "promised.db"))
        self.db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000")
        if not self.db.pragma("user_version"):
            schema = promises.SCHEMA.format(int="INTEGER", bytes="BLOB", keyed=" WITHOUT ROWID", funds=funds)
            self.db.execute(f"BEGIN; {schema} PRAGMA user_version = 1; COMMIT")
        self._ledger = self._load()

    def events_after(self, cursor: int) -> Iterable[EventRow]:
        """What a follower resumes with."""
        return self.db.execute(EVENTS, (cursor,))

    async def enqueue(self, txs: Sequence[bytes]) -> list[Refusal]:
        """Those that were refused; all others are durable."""
        ledger, at_ms = self._ledger, now_ms()
        ids = ledger.ids_of(txs)
        with self._transaction():
            made = ledger.admit(txs, ids, self._claim(ids), at_ms)
            self.db.executemany("DELETE FROM claim WHERE key = ?", [(claim,) for claim in made.unused])
            self.db.execute(TAKE, (FEE * len(made.jobs), promises.CALLER))
            self.db.executemany(f"INSERT INTO job VALUES ({placeholders(14)})", made.jobs)
            self._insert_events(made.events)
        return made.refusals

    async def drain(self, size: int) -> int:
        """Assign, acknowledge and complete the first jobs in order; a block is sealed with the last step."""
        jobs = [JobRef(*row) for row in self.db.execute(promises.FIND.format(size=size))]
        if not jobs:
            return 0
        with self._transaction():
            granted = self._accepted(GRANT, [(job.number,) for job in jobs])
            assigned = self._ledger.assign(jobs, granted, now_ms())
            self.db.executemany(f"INSERT INTO lease VALUES ({placeholders(8)})", assigned.leases)
            self._insert_events(assigned.events)
        with self._transaction():
            at_ms = now_ms()
            known = self._accepted(ACK, [(at_ms, job.lease) for job in assigned.jobs])
            self._insert_events(self._ledger.ack(assigned.jobs, known, at_ms))
        return self._complete(assigned.jobs)

    def _complete(self, jobs: Sequence[JobRef]) -> int:
        ledger, at_ms, used = self._ledger, now_ms(), nullifiers(jobs)
        with self._transaction():
            proven = with_claim(jobs, used, self._claim(used))
            made = ledger.complete(proven, self._accepted(CLOSE, [(job.lease,) for job, _ in proven]), at_ms)
            count = len(made.ends)
            self.db.executemany(END, made.ends)
            self.db.execute(GIVE, (FEE * count, (FEE - PAID) * count, promises.CALLER))
            self.db.execute(GIVE, (0, PAID * count, "bob"))
            self._insert_events(made.events)
            self.db.execute(f"INSERT INTO block VALUES ({placeholders(9)})", ledger.seal(at_ms))
        return count

    async def close(self) -> None:
        self.db.close()

    # ------------------------------------------------------------------------------------ pieces

    def _load(self) -> PromisedLedger:
        last = self.db.execute("SELECT coalesce(max(number), 0) FROM event").get
        balance = self.db.execute("SELECT available FROM account WHERE owner = ?", (promises.CALLER,)).get
        block = self.db.execute(NEWEST).fetchone()
        return PromisedLedger(last, balance, block, self.events_after(block[2] - 1 if block else 0))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, memory included."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            self._ledger = self._load()
            raise
        self.db.execute("COMMIT")

    def _claim(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those that nobody had."""
        event = self._ledger.next_event
        return self._accepted(CLAIM, [(claim, event) for claim in claims_of(hashes)])

    def _accepted(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> set[Any]:
        return {row[0] for row in self.db.executemany(statement, rows)}

    def _insert_events(self, events: Sequence[EventRow]) -> None:
        self.db.executemany(f"INSERT INTO event VALUES ({placeholders(5)})", events)
