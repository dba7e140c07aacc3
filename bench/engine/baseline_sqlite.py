"""The baseline: what one would write by hand to reserve and charge on SQLite, with the same facts made durable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import apsw

SCHEMA: Final = """
CREATE TABLE account (owner TEXT PRIMARY KEY, available INTEGER NOT NULL, held INTEGER NOT NULL,
    pending INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE hold (id BLOB PRIMARY KEY, event INTEGER NOT NULL, owner TEXT NOT NULL, amount INTEGER NOT NULL,
    status TEXT NOT NULL, charged INTEGER NOT NULL, payee TEXT, height INTEGER, settled INTEGER) STRICT;
CREATE INDEX hold_by_owner ON hold (owner, event);
CREATE TABLE event (number INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, kind INTEGER NOT NULL, hold BLOB NOT NULL,
    account TEXT NOT NULL, amount INTEGER NOT NULL, height INTEGER) STRICT;
INSERT INTO account VALUES ('alice', 1000000000000, 0, 0), ('bob', 0, 0, 0);
"""
DEBIT: Final = "UPDATE account SET available = available - ?1, held = held + ?1 WHERE owner = ?2 AND available >= ?1"
INSERT_RESERVATION: Final = "INSERT INTO hold VALUES (?1, ?2, ?3, ?4, 'HELD', 0, NULL, NULL, NULL)"
SELECT_RESERVATION: Final = "SELECT owner, amount FROM hold WHERE id = ?1 AND status = 'HELD'"
SETTLE: Final = (
    "UPDATE hold SET status = 'CHARGED', charged = ?2, payee = ?3, height = ?4, settled = ?5 "
    "WHERE id = ?1 AND status = 'HELD'"
)
RELEASE: Final = "UPDATE account SET held = held - ?1, pending = pending + ?2 WHERE owner = ?3"
PAY: Final = "UPDATE account SET pending = pending + ?1 WHERE owner = ?2"
INSERT_EVENT: Final = "INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"


class SqliteBaseline:
    """Balances, reservations and events as rows, updated at each command; apsw keeps the statements prepared."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.db = apsw.Connection(str(folder / "hand.db"))
        self.db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000")
        self.db.execute(SCHEMA)
        self._last = 0

    async def run(self, ids: Sequence[bytes], size: int) -> float:
        """Reserve and charge every id, `size` commands a transaction, each checked on its own; commands per second."""
        began = time.perf_counter()
        for at in range(0, len(ids), size):
            chunk = ids[at : at + size]
            for act in (self._reserve, self._charge):
                self.db.execute("BEGIN IMMEDIATE")
                for id_ in chunk:
                    act(id_)
                self.db.execute("COMMIT")
        return 2 * len(ids) / (time.perf_counter() - began)

    async def run_all_or_nothing(self, ids: Sequence[bytes], size: int) -> float:
        """The same rows with one statement per chunk: fast, but one refused command would refuse them all."""
        began = time.perf_counter()
        for at in range(0, len(ids), size):
            chunk = ids[at : at + size]
            now = time.time_ns() // 1_000_000
            with self.db:
                self.db.executemany(DEBIT, ((5, "alice") for _ in chunk))
                self.db.executemany(
                    INSERT_RESERVATION, [(id_, self._last + n, "alice", 5) for n, id_ in enumerate(chunk, 1)]
                )
                self.db.executemany(
                    INSERT_EVENT, [(self._last + n, now, 17, id_, "alice", 5, None) for n, id_ in enumerate(chunk, 1)]
                )
            self._last += len(chunk)
            with self.db:
                self.db.executemany(SETTLE, [(id_, 3, "bob", 1, self._last + n) for n, id_ in enumerate(chunk, 1)])
                self.db.executemany(RELEASE, ((5, 2, "alice") for _ in chunk))
                self.db.executemany(PAY, ((3, "bob") for _ in chunk))
                self.db.executemany(
                    INSERT_EVENT, [(self._last + n, now, 18, id_, "bob", 3, 1) for n, id_ in enumerate(chunk, 1)]
                )
            self._last += len(chunk)
        return 2 * len(ids) / (time.perf_counter() - began)

    async def close(self) -> None:
        self.db.close()

    def _reserve(self, id_: bytes) -> None:
        self.db.execute(DEBIT, (5, "alice"))
        if self.db.changes() != 1:
            raise AssertionError("not enough money")
        self.db.execute(INSERT_RESERVATION, (id_, self._next(), "alice", 5))
        self.db.execute(INSERT_EVENT, (self._last, time.time_ns() // 1_000_000, 17, id_, "alice", 5, None))

    def _charge(self, id_: bytes) -> None:
        found = self.db.execute(SELECT_RESERVATION, (id_,)).fetchone()
        if found is None:
            raise AssertionError("no such hold")
        owner, amount = found
        self.db.execute(SETTLE, (id_, 3, "bob", 1, self._next()))
        self.db.execute(RELEASE, (amount, amount - 3, owner))
        self.db.execute(PAY, (3, "bob"))
        self.db.execute(INSERT_EVENT, (self._last, time.time_ns() // 1_000_000, 18, id_, "bob", 3, 1))

    def _next(self) -> int:
        self._last += 1
        return self._last
