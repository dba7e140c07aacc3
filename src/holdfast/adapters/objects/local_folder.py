"""Objects in a folder: written once, durable before the call returns, whole or absent after a crash (ARC-004).

An object is written to a temporary file, synced, linked to its name, and its folder is synced, always in that order.
A link fails where the name exists: of two writers exactly one succeeds.
"""

from __future__ import annotations

import errno
import heapq
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final, TypeVar

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.objects.keys import check_key
from holdfast.ports.objects import StoredObject
from holdfast.system.durable_files import (
    FOLDER_MODE,
    TEMP_SUFFIX,
    lock_file,
    remove_leftovers,
    rename_file,
    sync_file,
    sync_folder,
)

TEMP_FOLDER: Final = ".tmp"
"""No key begins with a dot."""
LIST_PAGE: Final = 1_000
NAMES_MAX: Final = 20_000
"""Names of one folder that are sorted at once: a folder of any size is listed in little memory."""
_RULE: Final = "ARC-004"
_CANNOT_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK})
T = TypeVar("T")


class LocalObjects:
    """A folder and all folders below it. Several processes may use it at once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._temp = root / TEMP_FOLDER
        self._synced_folders: set[Path] = set()

    async def put_once(self, key: str, source: bytes | Path) -> bool:
        return await run_file_io(_RULE, self._put, check_key(key), source, False)

    async def replace(self, key: str, source: bytes | Path) -> None:
        await run_file_io(_RULE, self._put, check_key(key), source, True)

    async def size(self, key: str) -> int | None:
        return await run_file_io(_RULE, self._size, check_key(key))

    async def read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        return await run_file_io(_RULE, self._read, check_key(key), start, length)

    async def list(self, folder: str, after: str = "") -> AsyncIterator[StoredObject]:
        walk = self._walk(self._root / check_key(folder), f"{folder}/", after)
        while page := await run_file_io(_RULE, _next_page, walk):
            for each in page:
                yield each

    async def delete(self, key: str) -> None:
        await run_file_io(_RULE, self._delete, check_key(key))

    async def close(self) -> None:
        """Nothing is open."""

    # ------------------------------------------------------------------------------------ in a thread

    def _put(self, key: str, source: bytes | Path, is_replacing: bool) -> bool:
        path = self._root / key
        self._make_folder(path.parent)
        if is_replacing:
            self._fill_temp(source, lambda temp: rename_file(temp, path))
            return True
        # Where it exists, another process may have linked it and not synced its folder yet.
        is_new = not path.exists() and self._put_new(path, source)
        sync_folder(path.parent)
        return is_new

    def _put_new(self, path: Path, source: bytes | Path) -> bool:
        """A synced file on the same disk only gets another name; everything else is written to a temporary file."""
        if isinstance(source, Path):
            with source.open("rb") as file:
                sync_file(file.fileno())
            try:
                return _link(source, path)
            except OSError as fault:
                if fault.errno not in _CANNOT_LINK:
                    raise
        return self._fill_temp(source, lambda temp: _link(temp, path))

    def _fill_temp(self, source: bytes | Path, then: Callable[[Path], T]) -> T:
        """Write a temporary file, sync it, then give it its name."""
        self._make_folder(self._temp)
        while True:  # whoever removes leftovers meanwhile may hold the lock of a new file for a moment
            temp = self._temp / f"{secrets.token_hex(16)}{TEMP_SUFFIX}"
            if (file := lock_file(temp)) is not None:  # `remove_leftovers` of another process leaves it alone
                break
        try:
            with os.fdopen(file, "wb", buffering=0, closefd=False) as writer:
                if isinstance(source, bytes):
                    _write_all(writer, source)
                else:
                    with source.open("rb") as reader:
                        shutil.copyfileobj(reader, writer, 1 << 20)
            sync_file(file)
            return then(temp)
        finally:
            temp.unlink(missing_ok=True)
            os.close(file)

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and those above it, each durable before something is put into it."""
        if folder in self._synced_folders:
            return
        if folder != self._root:
            self._make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(folder.parent)
        else:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if folder == self._temp:
            remove_leftovers(folder)
        self._synced_folders.add(folder)

    def _size(self, key: str) -> int | None:
        try:
            status = (self._root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def _read(self, key: str, start: int, length: int | None) -> bytes | None:
        try:
            with (self._root / key).open("rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _delete(self, key: str) -> None:
        if self._size(key) is not None:
            path = self._root / key
            path.unlink(missing_ok=True)
            sync_folder(path.parent)

    def _walk(self, folder: Path, prefix: str, after: str) -> Iterator[StoredObject]:
        for name in _names(folder):
            key = prefix + name
            if name.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self._walk(folder / name, key, after)
            elif key > after and (size := self._size(key)) is not None:
                yield StoredObject(key, size)


def _next_page(walk: Iterator[StoredObject]) -> list[StoredObject]:
    return list(islice(walk, LIST_PAGE))


def _names(folder: Path) -> Iterator[str]:
    """Names in the order of keys: a folder counts with its `/`."""
    after = ""
    while True:
        try:
            with os.scandir(folder) as entries:
                names = (f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
                page = heapq.nsmallest(NAMES_MAX, (name for name in names if name > after and name[0] != "."))
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from page
        if len(page) < NAMES_MAX:
            return
        after = page[-1]


def _write_all(writer: IO[bytes], raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[writer.write(rest) :]


def _link(temp: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temp)
    except FileExistsError:
        return False
    return True
