"""The one interface between the spool and the file system: few verbs, each simple enough to be simulated.

What the spool relies on, and what a simulated disk does:

* **Data.** `write` and `truncate` change what `read` sees at once, and nothing on the medium. After a crash any part of
  what was not synced may be there: none, all, some of its sectors, in any order. A `sync` that returns makes everything
  done to that file durable: its bytes, its length, its reserved blocks. It says nothing about the file's name.
* **Names.** `create`, `rename`, `unlink` and `make_folder` show at once and are durable only when `sync_folder` of the
  folder they happened in has returned; until then each of them may be undone by a crash, alone. A rename is undone or
  done, never half: the new name holds the old file or the new one.
* **Handles** refer to a file, not a name: a renamed or unlinked file is still read and written through its handle.
* **Failure** is an OSError. A failed `write` may have written any part. After a failed `sync` it is unknown
  what is durable: reads may still show bytes that the medium never got, and the next `sync` may wrongly succeed
  (SP-CRASH-003). A failed verb on names may or may not have happened.
* **Locks** end with the process.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NewType, Protocol

import msgspec

from holdfast.system.durable_files import FILE_MODE, FOLDER_MODE, lock_file, sync_data, sync_folder

Handle = NewType("Handle", int)
"""An open file, until it is closed."""
_ZEROS: Final = bytes(1 << 20)


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a folder: its name and its length."""

    name: str
    size: int
    is_regular: bool = True
    """False: a link, a folder or a device is in the place of a file. Its size is 0."""


class Disk(Protocol):
    """What the spool needs from a disk. A path means the same file for as long as the spool is open."""

    def create(self, path: Path) -> Handle:
        """Create an empty file, open for reading and writing. FileExistsError where the name exists."""
        ...

    def open(self, path: Path, *, write: bool = False) -> Handle:
        """Open an existing file. FileNotFoundError where it does not exist; a link is not followed."""
        ...

    def close(self, handle: Handle) -> None:
        """Close a handle. It syncs nothing and never fails."""
        ...

    def size(self, handle: Handle) -> int:
        """The length in bytes."""
        ...

    def has_name(self, handle: Handle, path: Path) -> bool:
        """Whether this name still means the open file: another program may have replaced it."""
        ...

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """These bytes; fewer only where the file ends."""
        ...

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """Write all of `data` there, extending the file if need be, or raise."""
        ...

    def preallocate(self, handle: Handle, size: int) -> None:
        """Make the file `size` bytes long with blocks on the medium; what is new reads as zeros. Never shortens."""
        ...

    def truncate(self, handle: Handle, size: int) -> None:
        """Drop what is behind `size`. Only recovery (a torn tail) and the end of a preallocated segment need it."""
        ...

    def sync(self, handle: Handle) -> None:
        """fdatasync: return when all that was done to this file is durable. Never call it again after it raised."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same folder, atomically; a file that had it loses it."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove the name. FileNotFoundError where it does not exist."""
        ...

    def files(self, folder: Path) -> list[FileEntry]:
        """What is in a folder, by name: files, and what is in the place of one. FileNotFoundError without a folder."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """The names of the folders in a folder, sorted. FileNotFoundError where there is no such folder."""
        ...

    def make_folder(self, path: Path) -> bool:
        """Make one folder; False where it exists already."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return when every change of names in this folder is durable."""
        ...

    def lock(self, path: Path) -> Handle | None:
        """Lock this file, created if need be, against other holders in any process; None where it is locked."""
        ...

    def unlock(self, handle: Handle) -> None:
        """Release the lock. The file stays."""
        ...

    def free_bytes(self, folder: Path) -> int:
        """Bytes that the medium has left for us."""
        ...


class RealDisk:
    """The machine's file system."""

    def create(self, path: Path) -> Handle:
        return Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))

    def open(self, path: Path, *, write: bool = False) -> Handle:
        return Handle(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW))

    def close(self, handle: Handle) -> None:
        try:
            os.close(handle)
        except OSError:  # Linux has released it all the same; what matters was synced before
            return

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def has_name(self, handle: Handle, path: Path) -> bool:
        try:
            named, opened = path.lstat(), os.fstat(handle)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        data = os.pread(handle, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        while (missing := length - sum(map(len, parts))) > 0:
            more = os.pread(handle, missing, offset + length - missing)
            if not more:
                break
            parts.append(more)
        return b"".join(parts)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        done = os.pwrite(handle, data, offset)
        while done < len(data):  # a signal or a full disk cut it short; the next call tells which
            done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    def preallocate(self, handle: Handle, size: int) -> None:
        """Zeros are written, not only blocks reserved: a later write to a reserved block would cost a journal commit.

        Blocks are reserved first, so that a full disk is reported before anything is written.
        """
        begin = self.size(handle)
        if begin >= size:
            return
        try:
            os.posix_fallocate(handle, begin, size - begin)
        except OSError as fault:
            if fault.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        for offset in range(begin, size, len(_ZEROS)):
            self.write(handle, offset, _ZEROS[: size - offset])

    def truncate(self, handle: Handle, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: Handle) -> None:
        sync_data(handle)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def files(self, folder: Path) -> list[FileEntry]:
        files = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        files.append(FileEntry(entry.name, entry.stat(follow_symlinks=False).st_size))
                    else:
                        files.append(FileEntry(entry.name, 0, is_regular=False))
                except FileNotFoundError:  # it was removed meanwhile
                    continue
        return sorted(files, key=lambda entry: entry.name)

    def folders(self, folder: Path) -> list[str]:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def make_folder(self, path: Path) -> bool:
        try:
            path.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            return False
        return True

    def sync_folder(self, path: Path) -> None:
        sync_folder(path)

    def lock(self, path: Path) -> Handle | None:
        file = lock_file(path)
        return None if file is None else Handle(file)

    def unlock(self, handle: Handle) -> None:
        self.close(handle)

    def free_bytes(self, folder: Path) -> int:
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize
