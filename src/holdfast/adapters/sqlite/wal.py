"""Looks at a write-ahead log before SQLite writes: SQLite takes a damaged frame for the log's end and drops the rest.

A crash leaves at most one transaction unfinished, since each is synced before the next begins. So what follows a frame
that does not fit may hold one commit, the unfinished one's. More of them were durable, and are not thrown away.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct, unpack

import apsw

from holdfast.adapters.sqlite.connect import connect_to_read
from holdfast.core.refusal import Corrupt

_HEADER, _FRAME = Struct(">8I"), Struct(">6I")


def check_log(database: Path) -> None:
    """Corrupt where the log of this database was damaged after it was synced (ENG-003)."""
    log = database.with_name(database.name + "-wal")
    raw = _read(log)
    while len(raw) > _HEADER.size and any(raw[: _HEADER.size]):  # else nothing was ever synced into it
        lost = _commits(raw, after=_frames_that_count(database))
        if lost <= 1:
            return
        before, raw = raw, _read(log)
        if raw[: _HEADER.size] == before[: _HEADER.size]:
            raise Corrupt(
                "ENG-003", f"{log} is damaged: {lost} transactions in it cannot be read", "restore it from a backup"
            )
        # Somebody who writes beside us, an operator who archives, began another log meanwhile: look again.


def _read(log: Path) -> bytes:
    return log.read_bytes() if log.exists() else b""


def _frames_that_count(database: Path) -> int:
    """How far SQLite itself reads this log; asked through SQLite, by a reader that changes nothing.

    Never look into the log's index (`-shm`) by hand: closing any handle of it gives up the locks that this process's
    connections hold on it, and the next process to come empties it under their feet.
    """
    db = connect_to_read(database)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchall()
        return db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
    finally:
        db.close()


def _commits(raw: bytes, after: int) -> int:
    """Commits of this log's own among the frames that SQLite would pass over."""
    magic, _, page, _, *salt, one, two = _HEADER.unpack_from(raw)
    if _sum(raw[:24], magic) != (one, two):
        return len(raw) // 512  # its header is damaged: without it the whole log would count for nothing
    size = 24 + page
    starts = range(_HEADER.size + after * size, len(raw) - size + 1, size)
    frames = (_FRAME.unpack_from(raw, at) for at in starts)
    return sum(1 for _, commit, *own, _, _ in frames if commit and own == salt)


def _sum(header: bytes, magic: int) -> tuple[int, int]:
    """SQLite's own checksum of the header; the last bit of its magic number says which way round the words are."""
    one = two = 0
    words = iter(unpack(f"{'>' if magic & 1 else '<'}6I", header))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
