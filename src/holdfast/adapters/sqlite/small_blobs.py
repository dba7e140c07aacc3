"""Small outputs of the warm tier (TIER-001): rows of one SQLite file, so that a group of them takes one sync.

A file of its own for each would take two syncs each, which is most of what a short job costs. Bytes are checked against
their digest when they are read, as those in files are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.adapters.sqlite.connect import connect, connect_to_read
from holdfast.adapters.warm_damage import set_bytes_aside
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.result.ids import result_digest
from holdfast.ports import SCAN_END, AgedBlob, scan_position
from holdfast.system.durable_files import sync_folder

FILE_NAME: Final = "small.sqlite"
POSITION_BYTES: Final = 6
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS small (
    number INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    used_ms INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT
"""
_DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


class SmallBlobs:
    """Bytes by digest. Its methods block and run in threads; one connection serves them one after the other."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._lock = threading.Lock()
        self._reader: apsw.Connection | None = None
        self._writer: apsw.Connection | None = None
        self._has_table = False

    def put_many(self, blobs: Mapping[Digest, bytes]) -> int:
        """Hold these bytes, durable when this returns: one transaction, one sync. Returns how many bytes are new."""
        now_ms = time.time_ns() // 1_000_000
        rows = [(digest, len(raw), now_ms, raw) for digest, raw in blobs.items()]
        with self._writing() as connection:
            held = set(_known(connection, blobs))
            for digest in held:
                self._set_aside(connection, digest)
            connection.executemany(
                "INSERT INTO small (digest, size, used_ms, bytes) VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE"
                " SET size = excluded.size, used_ms = excluded.used_ms, bytes = excluded.bytes",
                rows,
            )
        return sum(size for digest, size, _, _ in rows if digest not in held)

    def size(self, digest: Digest, touch_before_ms: int) -> int | None:
        """How many bytes are held. If they were last used before `touch_before_ms`, they are used now."""
        row = self._row("SELECT size, used_ms FROM small WHERE digest = ?", digest)
        if row is None:
            return None
        if row[1] < touch_before_ms:
            with self._writing() as connection:
                now_ms = time.time_ns() // 1_000_000
                connection.execute("UPDATE small SET used_ms = ? WHERE digest = ?", (now_ms, digest))
        return int(row[0])

    def read(self, digest: Digest) -> bytes | None:
        """The bytes; Corrupt where they are not those of the digest."""
        row = self._row("SELECT bytes FROM small WHERE digest = ?", digest)
        if row is None:
            return None
        if result_digest(row[0]) != digest:
            message = f"{self._path}: the bytes of {digest.hex()} do not match their digest"
            raise Corrupt("TIER-001", message, "restore the file from a copy")
        return bytes(row[0])

    def damaged(self, digest: Digest) -> bytes | None:
        """The bytes that are held, where they are not those of the digest."""
        row = self._row("SELECT bytes FROM small WHERE digest = ?", digest)
        return None if row is None or result_digest(row[0]) == digest else bytes(row[0])

    def delete_many(self, digests: Sequence[Digest]) -> int:
        """Delete these bytes, durable when this returns, and return how many bytes went; missing ones are ignored."""
        if not self._path.exists():
            return 0
        with self._writing() as connection:
            freed = sum(_known(connection, digests).values())
            connection.executemany("DELETE FROM small WHERE digest = ?", [(digest,) for digest in digests])
        return freed

    def scan_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        """As `warm_scan.scan_aged`, for these bytes."""
        begin = min(position, SCAN_END - 1).to_bytes(POSITION_BYTES, "big")
        with self._reading() as connection:
            if connection is None or position >= SCAN_END:
                return [], SCAN_END
            query = "SELECT digest, size, used_ms FROM small WHERE digest >= ? ORDER BY digest LIMIT ?"
            rows = list(connection.execute(query, (begin, scan_max + 1)))
        following = scan_position(Digest(rows[-1][0])) if len(rows) > scan_max else SCAN_END
        return [(Digest(digest), size) for digest, size, used_ms in rows[:scan_max] if used_ms <= before_ms], following

    def usage(self) -> int:
        """How many bytes are held in total."""
        row = self._row("SELECT coalesce(sum(size), 0) FROM small")
        return 0 if row is None else int(row[0])

    def _set_aside(self, connection: apsw.Connection, digest: Digest) -> None:
        """Keep the bytes of a row that is about to be replaced, where they are damaged."""
        raw = connection.execute("SELECT bytes FROM small WHERE digest = ?", (digest,)).get
        if result_digest(raw) != digest:
            set_bytes_aside(self._path.parent, raw, digest)

    # ------------------------------------------------------------------------------------ connections

    def _row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._reading() as connection:
            return None if connection is None else next(iter(connection.execute(query, values)), None)

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection | None]:
        """Any process may read; None while the owner has held nothing small yet."""
        with self._lock, self._translated():
            if self._writer is None and self._reader is None and self._path.exists():
                self._reader = connect_to_read(self._path)
            connection = self._writer or self._reader
            if connection is not None and not self._has_table:
                self._has_table = _is_initialized(connection)
            yield connection if self._has_table else None

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._lock, self._translated():
            if self._writer is None:
                self._writer = connect(self._path, "FULL")
                self._writer.execute(_SCHEMA)
                sync_folder(self._path.parent)
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:  # a full disk has ended it already
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as fault:
            raise Corrupt("TIER-001", f"{self._path} is damaged: {fault}", "restore the file from a copy") from fault
        except apsw.Error as fault:
            hint = "free some disk space" if isinstance(fault, apsw.FullError) else "check the disk and the permissions"
            raise Unavailable("TIER-001", f"{self._path}: {fault}", hint) from fault


def _known(connection: apsw.Connection, digests: Iterable[Digest]) -> dict[Digest, int]:
    """The sizes of those that are held."""
    query = "SELECT size FROM small WHERE digest = ?"
    sizes = {digest: connection.execute(query, (digest,)).get for digest in digests}
    return {digest: size for digest, size in sizes.items() if size is not None}


def _is_initialized(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'small'").get)
