"""An advisory lock on a file: it names one process among those that could write, and ends with that process."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.core.base.errors import Unavailable

_PAUSE_S: Final = 0.005
_LOCK_ATTEMPTS: Final = 10
"""How often the lock is tried before it counts as held by another process."""


def _lock_with_retries(file: int) -> None:
    """Take the lock. `is_free` of another process holds it for a moment: that is not an owner yet."""
    for _ in range(_LOCK_ATTEMPTS - 1):
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_PAUSE_S)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class OwnerLock:
    """An exclusive lock on a file that ends with the process; the file shows the owner's process id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock_with_retries(file)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise Unavailable(
                "ENG-001",
                f"process {holder or '?'} owns {self._path.parent}",
                "stop that node first, or use another folder",
            ) from None
        self._file = file
        with suppress(OSError):  # on a full disk: the lock counts, the process id is only shown to people
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def is_free(self) -> bool:
        """Whether no other process holds it at this moment."""
        if self._file is not None or not self._path.exists():
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
