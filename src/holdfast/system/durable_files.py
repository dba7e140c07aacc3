"""Files that survive a crash: the one place that syncs, locks, replaces and creates them.

A file is replaced in four steps, always in this order: write a temporary file, sync it, rename it, sync its folder.
After a crash the name holds the old content or the new one. All functions raise OSError where the system call fails.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

TEMP_SUFFIX: Final = ".tmp"
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def sync_file(file: int) -> None:
    """Return when the file's bytes, length and attributes are durable. It says nothing about its name."""
    os.fsync(file)


def sync_data(file: int) -> None:
    """Return when the file's bytes and length are durable: `sync_file` without its times."""
    os.fdatasync(file)


def sync_folder(folder: Path) -> None:
    """Return when every name that was created, renamed or removed in this folder is durable."""
    handle = _open_folder(folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_filesystem(folder: Path) -> None:
    """Return when everything on the folder's file system is durable: one call, however many files have changed."""
    handle = _open_folder(folder)
    try:
        _syncfs(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, raw: bytes, *, mode: int = FILE_MODE) -> None:
    """Give the file this content, durable when this returns.

    The temporary file is locked while it is written: a second writer of the same file fails, and `remove_leftovers`
    of another process leaves it alone.
    """
    temp = path.with_name(path.name + TEMP_SUFFIX)
    file = lock_file(temp, mode)
    if file is None:
        raise BlockingIOError(errno.EAGAIN, "another process is writing it", str(path))
    try:
        os.ftruncate(file, 0)
        _write_synced(file, raw)
        temp.replace(path)
    except BaseException:
        temp.unlink(missing_ok=True)  # what did not fit must not keep a full disk full
        raise
    finally:
        os.close(file)
    sync_folder(path.parent)


def write_once(path: Path, raw: bytes, *, mode: int = FILE_MODE) -> bool:
    """Create the file with this content, durable when this returns; False, and nothing changed, where it exists.

    It is linked instead of renamed: of two processes that create the same file, exactly one succeeds.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(8)}{TEMP_SUFFIX}")
    try:
        file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(file, mode)  # whatever the umask is
            _write_synced(file, raw)
        finally:
            os.close(file)
        is_new = _link(temp, path)
    finally:
        temp.unlink(missing_ok=True)
    sync_folder(path.parent)  # also where another process was faster: the caller may rely on the file
    return is_new


def rename_file(source: Path, target: Path) -> None:
    """Rename a synced file, replacing the target, durable when this returns."""
    source.replace(target)
    sync_folder(target.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of processes that were killed: those that no process holds a lock on."""
    for temp in folder.glob(f"*{TEMP_SUFFIX}"):
        with suppress(OSError), temp.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temp.unlink()


def lock_file(path: Path, mode: int = FILE_MODE) -> int | None:
    """Open the file, created if need be, and lock it until it is closed; None where another handle has the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _has_name(file, path):
                return file
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:  # a handle that stays open would hold the lock until the process ends
            os.close(file)
            raise
        os.close(file)  # its last holder renamed or removed it: the lock is on a file without this name


def _has_name(file: int, path: Path) -> bool:
    try:
        named, opened = path.stat(), os.fstat(file)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _write_synced(file: int, raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(file, rest) :]
    sync_file(file)


def _link(temp: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temp)
    except FileExistsError:
        return False
    return True


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _syncfs(handle: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
