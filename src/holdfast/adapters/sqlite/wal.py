"""Checks a write-ahead log before SQLite writes: SQLite takes a damaged frame for the log's end and drops the rest.

A crash leaves at most one transaction unfinished, since each is synced before the next begins. So the frames after an
invalid one may hold one commit, that of the unfinished transaction. More commits mean that durable ones would be lost.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct, unpack

import apsw

from holdfast.adapters.sqlite.connect import connect_to_read
from holdfast.core.base.errors import Corrupt

_HEADER, _FRAME = Struct(">8I"), Struct(">6I")


def check_wal(database: Path) -> None:
    """Corrupt if the WAL of this database was damaged after it was synced (ENG-003)."""
    log = database.with_name(database.name + "-wal")
    raw = _read(log)
    while len(raw) > _HEADER.size and any(raw[: _HEADER.size]):  # else nothing was ever synced into it
        lost = _commits_after(raw, after=_valid_frame_count(database))
        if lost <= 1:
            return
        before, raw = raw, _read(log)
        if raw[: _HEADER.size] == before[: _HEADER.size]:
            raise Corrupt(
                "ENG-003", f"{log} is damaged: {lost} transactions in it cannot be read", "restore it from a backup"
            )
        # Another process, such as an operator who archives, has started a new log meanwhile: check again.


def _read(log: Path) -> bytes:
    return log.read_bytes() if log.exists() else b""


def _valid_frame_count(database: Path) -> int:
    """How many frames SQLite itself reads from this log, as a reader that changes nothing.

    Never open the log's index (`-shm`) directly: closing any handle of it releases the locks that this process's
    connections hold on it, and the next process that connects would empty it while they use it.
    """
    db = connect_to_read(database)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        return db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
    finally:
        db.close()


def _commits_after(raw: bytes, after: int) -> int:
    """Commits of this log among the frames that SQLite would skip."""
    magic, _, page, _, *salt, one, two = _HEADER.unpack_from(raw)
    if _header_checksum(raw[:24], magic) != (one, two):
        return len(raw) // 512  # the header is damaged: SQLite would ignore the whole log
    size = 24 + page
    starts = range(_HEADER.size + after * size, len(raw) - size + 1, size)
    frames = (_FRAME.unpack_from(raw, start) for start in starts)
    return sum(1 for _, commit, *own, _, _ in frames if commit and own == salt)


def _header_checksum(header: bytes, magic: int) -> tuple[int, int]:
    """SQLite's checksum of the header; the last bit of the magic number gives the byte order of the words."""
    one = two = 0
    words = iter(unpack(f"{'>' if magic & 1 else '<'}6I", header))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
