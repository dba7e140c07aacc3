"""A folder of whole files: temp, fsync, rename, fsync of the folder, always in that order."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from holdfast.core.refusal import Unavailable

_TEMP: Final = ".tmp"
_LOCK: Final = ".lock"
T = TypeVar("T")


class Folder:
    """Files that exist whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def names(self) -> list[str]:
        """Finished files; what a crash left half-written is not one."""
        return await _in_thread(self._names)

    async def read(self, name: str) -> bytes | None:
        return await _in_thread(self._read, name)

    async def replace(self, name: str, raw: bytes) -> None:
        await _in_thread(self._replace, name, raw)

    async def delete(self, name: str) -> None:
        await _in_thread(self._delete, name)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While this lasts no other process that asks for it works on the folder; Unavailable where one does."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise _unavailable(fault) from fault
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise Unavailable("ENG-004", f"another process works on {self._path}", "wait until it has ended") from None
        finally:
            os.close(file)

    def _names(self) -> list[str]:
        if not self._path.exists():
            return []
        names = (entry.name for entry in self._path.iterdir())
        return sorted(name for name in names if not name.endswith(_TEMP) and name != _LOCK)

    def _read(self, name: str) -> bytes | None:
        path = self._path / name
        return path.read_bytes() if path.exists() else None

    def _replace(self, name: str, raw: bytes) -> None:
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        temp = self._path / (name + _TEMP)
        with temp.open("ab") as file:  # not emptied before it is ours alone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with _gone_after_a_fault(temp):
                file.truncate(0)
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
                temp.replace(self._path / name)
        self._sync()

    def _sweep(self) -> None:
        """Remove what a process that was killed left half-written: nobody holds its lock any more."""
        for left in self._path.glob(f"*{_TEMP}"):
            with suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()

    def _delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        self._sync()

    def _sync(self) -> None:
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _gone_after_a_fault(temp: Path) -> Iterator[None]:
    """A full disk is not to be kept full by what did not fit on it."""
    try:
        yield
    except BaseException:
        temp.unlink(missing_ok=True)
        raise


async def _in_thread(work: Callable[..., T], *args: object) -> T:
    try:
        return await asyncio.to_thread(work, *args)
    except OSError as fault:
        raise _unavailable(fault) from fault


def _unavailable(fault: OSError) -> Unavailable:
    where = f": {fault.filename}" if fault.filename else ""
    return Unavailable("ENG-003", f"{fault.strerror}{where}", "check disk space and permissions")
