"""Writes the space of a write-ahead log before its frames need it.

A commit that makes its file longer waits for the file system's own journal, beside everybody else who syncs. One that
overwrites bytes does not. SQLite reuses a log from its beginning once it was copied; until then each commit is of the
slow kind. Zeros behind the last frame are no frames: readers, recovery and `check_wal` stop there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from holdfast.adapters.sqlite.connect import WAL_PAGES

CHUNK: Final = 1 << 20
_FRAME: Final = 4096 + 24
_SMALL: Final = 64
"""Frames of a commit that others like it follow: so much space is left when the next chunk is written. A larger commit
takes longer to write than to extend its file, and zeros would be written for nothing."""
_ZEROS: Final = bytes(CHUNK)


class WalSpace:
    """Keeps the log of a connection ahead of its frames. It also has the log copied, as SQLite does by default."""

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(database.name + "-wal")
        self._written = self._frames = 0

    def watch(self, db: apsw.Connection) -> None:
        """From now on after each commit; this replaces `wal_autocheckpoint`."""
        self._written = self._frames = 0
        db.set_wal_hook(self._on_commit)

    def _on_commit(self, db: apsw.Connection, _: str, frames: int) -> int:
        """The commit is durable: whatever fails here is no failure of it, and is tried again after the next one."""
        is_small, self._frames = frames - self._frames <= _SMALL, frames
        with suppress(apsw.Error, OSError):
            if frames >= WAL_PAGES:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if is_small and (frames + _SMALL) * _FRAME > self._written:
                self._append_zeros()
        return apsw.SQLITE_OK

    def _append_zeros(self) -> None:
        """Behind the end, wherever it is by now: another process may write to the same log (O_APPEND)."""
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(log, _ZEROS)
            self._written = os.fstat(log).st_size
        finally:
            os.close(log)
