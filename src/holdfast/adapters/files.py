"""A folder of whole files: temp, fsync, rename, fsync of the folder, always in that order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.adapters.file_io import run_file_io, unavailable
from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import (
    FOLDER_MODE,
    TEMP_SUFFIX,
    lock_file,
    remove_leftovers,
    replace_file,
    sync_folder,
)

_LOCK: Final = ".lock"
_RULE: Final = "ENG-003"
_EXPORT_MODE: Final = 0o666
"""The umask decides who else may read an export; a folder that we create is private."""


class AtomicFolder:
    """Files that exist whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def names(self) -> list[str]:
        """The finished files, without what a crash left half-written."""
        return await run_file_io(_RULE, self._names)

    async def read(self, name: str) -> bytes | None:
        return await run_file_io(_RULE, self._read, name)

    async def replace(self, name: str, raw: bytes) -> None:
        await run_file_io(_RULE, self._replace, name, raw)

    async def delete(self, name: str) -> None:
        await run_file_io(_RULE, self._delete, name)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the folder against other processes that use this; Unavailable if one of them holds the lock."""
        try:
            self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            file = lock_file(self._path / _LOCK)
        except OSError as fault:
            raise unavailable(_RULE, fault) from fault
        if file is None:
            raise Unavailable("ENG-004", f"another process is working on {self._path}", "wait until it has ended")
        try:
            yield
        finally:
            os.close(file)

    def _names(self) -> list[str]:
        if not self._path.exists():
            return []
        names = (entry.name for entry in self._path.iterdir())
        return sorted(name for name in names if not name.endswith(TEMP_SUFFIX) and name != _LOCK)

    def _read(self, name: str) -> bytes | None:
        path = self._path / name
        return path.read_bytes() if path.exists() else None

    def _replace(self, name: str, raw: bytes) -> None:
        self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        remove_leftovers(self._path)
        replace_file(self._path / name, raw, mode=_EXPORT_MODE)

    def _delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)
        sync_folder(self._path)
