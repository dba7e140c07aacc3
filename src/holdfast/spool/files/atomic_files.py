"""Small files that are complete or do not exist, on the spool's disk.

The steps are those of `system/durable_files`, taken over `Disk` so that a simulated disk can crash between any two:
write a temporary file, sync it, rename it, sync its folder.
"""

from __future__ import annotations

import errno
from pathlib import Path

from holdfast.core.base.errors import Unavailable
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.names import temp_path

_SMALL_FILE_BYTES_MAX = 1 << 16
_NOT_A_FILE = (errno.ELOOP, errno.EISDIR)


def replace_file(disk: Disk, path: Path, raw: bytes) -> None:
    """Give the file this content, durable when this returns. After a crash it holds the old content or the new one."""
    temp = temp_path(path)
    remove_file(disk, temp)
    handle = disk.create(temp)
    try:
        disk.write(handle, 0, raw)
        disk.sync(handle)
    finally:
        disk.close(handle)
    disk.rename(temp, path)
    disk.sync_folder(path.parent)


def remove_file(disk: Disk, path: Path) -> bool:
    """Remove a name; False where it did not exist. Durable with the folder's next sync."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    return True


def read_small_file(disk: Disk, path: Path) -> bytes | None:
    """The content of a small file; None where it does not exist. A link or a folder in its place has none."""
    try:
        handle = disk.open(path)
    except FileNotFoundError:
        return None
    except OSError as fault:
        if fault.errno not in _NOT_A_FILE:
            raise
        return b""
    try:
        return disk.read(handle, 0, _SMALL_FILE_BYTES_MAX)
    except IsADirectoryError:
        return b""
    finally:
        disk.close(handle)


def check_unchanged(disk: Disk, handle: Handle, path: Path, size: int) -> None:
    """SP-OWN-001: just before a cut or a rename. Another program that writes the file takes no lock."""
    if disk.size(handle) != size or not disk.has_name(handle, path):
        raise OSError(errno.EBUSY, "another program has written to the file or replaced it", str(path))


def as_unavailable(fault: OSError, rule: str = "SP-002") -> Unavailable:
    """A failure of the disk in one sentence, with a hint."""
    where = f": {fault.filename}" if fault.filename else ""
    return Unavailable(rule, f"{fault.strerror or fault}{where}", "check disk, space and permissions")
