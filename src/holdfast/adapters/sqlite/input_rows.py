"""Who has uploaded which input, and the bytes of small ones: rows of one SQLite file (JOB-003).

Inputs that come with their jobs come in numbers: those of concurrent calls are one transaction with one sync.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.adapters.sqlite.connect import connect
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import AccountId, Digest
from holdfast.ports.inputs import AgedInput

FILE_NAME: Final = "inputs.sqlite"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS input (
    digest BLOB NOT NULL,
    account TEXT NOT NULL,
    size INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    is_named INTEGER NOT NULL,
    bytes BLOB,
    PRIMARY KEY (digest, account)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS input_by_use ON input (is_named, used_ms);
"""
_HOLD: Final = (
    "INSERT INTO input (digest, account, size, used_ms, is_named, bytes) VALUES (?, ?, ?, ?, 0, ?)"
    " ON CONFLICT (digest, account) DO UPDATE SET used_ms = excluded.used_ms,"
    " bytes = coalesce(excluded.bytes, input.bytes)"
)
_AGED: Final = "SELECT account, digest, is_named FROM input WHERE is_named = ? AND used_ms < ? ORDER BY used_ms LIMIT ?"
HeldInput = tuple[Digest, AccountId, int, int, bytes | None]
"""Digest, account, size, when, and the bytes where they are not a file."""


class InputRows:
    """Its methods block and run in threads, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = folder / FILE_NAME, threading.Lock()
        self._connection: apsw.Connection | None = None

    def hold(self, inputs: Iterable[HeldInput]) -> None:
        """Durable when this returns: one transaction for all."""
        with self._transaction() as db:
            db.executemany(_HOLD, inputs)

    def size(self, account: AccountId, digest: Digest) -> int | None:
        row = self._row("SELECT size FROM input WHERE digest = ? AND account = ?", digest, account)
        return None if row is None else int(row[0])

    def use(self, account: AccountId, digest: Digest, now_ms: int) -> int | None:
        """Its size, if it is held; from now on a job may name it."""
        with self._transaction() as db:
            query = "UPDATE input SET used_ms = ?, is_named = 1 WHERE digest = ? AND account = ? RETURNING size"
            row = db.execute(query, (now_ms, digest, account)).fetchone()
        return None if row is None else int(row[0])

    def bytes_of(self, digest: Digest) -> bytes | None:
        row = self._row("SELECT bytes FROM input WHERE digest = ? AND bytes IS NOT NULL LIMIT 1", digest)
        return None if row is None else bytes(row[0])

    def is_held(self, digest: Digest) -> bool:
        return self._row("SELECT 1 FROM input WHERE digest = ? LIMIT 1", digest) is not None

    def aged(self, unnamed_before_ms: int, named_before_ms: int, limit: int) -> list[AgedInput]:
        with self._transaction() as db:
            rows = [
                row
                for is_named, before_ms in ((0, unnamed_before_ms), (1, named_before_ms))
                for row in db.execute(_AGED, (is_named, before_ms, limit))
            ]
        return [AgedInput(AccountId(account), Digest(digest), bool(named)) for account, digest, named in rows]

    def touch(self, inputs: Sequence[AgedInput], now_ms: int) -> None:
        query = "UPDATE input SET used_ms = max(used_ms, ?) WHERE digest = ? AND account = ?"
        with self._transaction() as db:
            db.executemany(query, [(now_ms, aged.digest, aged.account) for aged in inputs])

    def delete(self, inputs: Sequence[AgedInput], unnamed_before_ms: int, named_before_ms: int) -> list[Digest]:
        """Delete those that are still aged; returns their digests."""
        query = "DELETE FROM input WHERE digest = ? AND account = ? AND used_ms < iif(is_named, ?, ?) RETURNING digest"
        deleted: list[Digest] = []
        with self._transaction() as db:
            for aged in inputs:
                keys = (aged.digest, aged.account, named_before_ms, unnamed_before_ms)
                deleted += [Digest(digest) for (digest,) in db.execute(query, keys)]
        return deleted

    def _row(self, query: str, *keys: object) -> Any:
        with self._transaction() as db:
            return db.execute(query, keys).fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """One at a time, and whole or not at all."""
        try:
            with self._lock, self._open() as db:
                yield db
        except apsw.Error as fault:
            raise Unavailable("JOB-003", f"{self._path}: {fault}", "check the disk") from fault

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._connection = connect(self._path, "FULL")
            self._connection.execute(_SCHEMA)
        return self._connection
