"""Small files that are complete or do not exist, on the spool's disk.

The steps are those of `system/durable_files`, taken over `Disk` so that a simulated disk can crash between any two:
write a temporary file, sync it, rename it, sync its folder.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.base.errors import Unavailable
from holdfast.spool.files.disk import Disk
from holdfast.spool.files.names import temp_path

_SMALL_FILE_BYTES_MAX = 1 << 16


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
    """The content of a small file; None where it does not exist."""
    try:
        handle = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return disk.read(handle, 0, _SMALL_FILE_BYTES_MAX)
    finally:
        disk.close(handle)


def as_unavailable(fault: OSError, rule: str = "SP-002") -> Unavailable:
    """A failure of the disk in one sentence, with a hint."""
    where = f": {fault.filename}" if fault.filename else ""
    return Unavailable(rule, f"{fault.strerror or fault}{where}", "check disk, space and permissions")
