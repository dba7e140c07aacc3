"""An advisory lock on a file: it names one process among those that could write, and ends with that process.

The file says which process that is (ENG-008). Its time of change is the owner's heartbeat: that needs no space.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.core.base.errors import Unavailable
from holdfast.ports import OwnerBeat
from holdfast.system.process_identity import NotEnded, ProcessIdentity, end_process

_PAUSE_S: Final = 0.005
_END_WAIT_S: Final = 10.0
"""How long a process that was killed may take to end."""
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
            holder = _describe(_read_identity(file))
            os.close(file)
            raise Unavailable(
                "ENG-001", f"{holder} owns {self._path.parent}", "stop that node first, or use another folder"
            ) from None
        self._file = file
        with suppress(OSError):  # on a full disk: the lock counts, the process id is only shown to people
            os.ftruncate(file, 0)
            os.pwrite(file, f"{ProcessIdentity.own()}\n".encode(), 0)

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

    def beat(self) -> None:
        """Show that the holder lives."""
        if self._file is not None:
            now_ns = time.time_ns()  # the kernel's own reading is the same for milliseconds
            os.utime(self._file, ns=(now_ns, now_ns))

    def last_beat(self) -> OwnerBeat | None:
        """The holder and its last heartbeat; None where no process holds it."""
        if self._file is None and self.is_free():
            return None
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return OwnerBeat(_describe(_read_identity(file)), str(os.fstat(file).st_mtime_ns))
        finally:
            os.close(file)

    def evict(self, seen: OwnerBeat) -> None:
        """Kill the holder whose last heartbeat this is, and wait until it is gone."""
        if self.last_beat() != seen:
            return
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        identity = _read_identity(file)
        os.close(file)
        try:
            if identity is None:
                raise NotEnded("the lock does not name it")
            end_process(identity, _END_WAIT_S)
            if self.last_beat() == seen:  # another container numbers its processes otherwise
                raise NotEnded("the lock is held by a process that has another id here")
        except NotEnded as fault:
            raise Unavailable("ENG-008", f"{seen.holder} hangs and cannot be ended: {fault}") from fault

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read_identity(file: int) -> ProcessIdentity | None:
    return ProcessIdentity.parse(os.pread(file, 128, 0).decode(errors="replace"))


def _describe(identity: ProcessIdentity | None) -> str:
    return f"process {identity.pid if identity is not None else '?'}"
