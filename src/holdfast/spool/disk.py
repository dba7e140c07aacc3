"""The one seam between the spool and the world: few verbs, each simple enough to be simulated.

What the spool may rely on, and a simulated disk must keep:

* **Data.** `write` and `cut` change what `read` sees at once, and nothing on the medium. After a crash any part of what
  was not synced may be there: none, all, some of its sectors, in any order. `sync` that returns makes everything done
  to that file durable: its bytes, its length, its reservation. It says nothing about the file's name.
* **Names.** `create`, `rename`, `unlink` and `make_folder` show at once and are durable only when `sync_folder` of the
  folder they happened in has returned; until then each of them may be undone by a crash, alone. A rename is undone or
  done, never half: the new name holds the old file or the new one.
* **Handles** mean a file, not a name: a renamed or unlinked file is read and written through an open handle as before.
* **Failure** is an OSError. A failed `write` may have written any part. After a failed `sync` nobody knows what is
  durable, reads may still show bytes that the medium never got, and the next `sync` may wrongly succeed
  (SP-CRASH-003). A failed verb on names may or may not have happened.
* **Locks** end with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final, NewType, Protocol

import msgspec

Handle = NewType("Handle", int)
"""An open file, until it is closed."""
_ZEROS: Final = bytes(1 << 20)
_MODE_FILE: Final = 0o600
_MODE_FOLDER: Final = 0o700


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One file of a folder: its name and its length."""

    name: str
    size: int


class Disk(Protocol):
    """What the spool needs from a disk. All paths are absolute or mean the same for the spool's whole life."""

    def create(self, path: Path) -> Handle:
        """A new empty file, open for reading and writing. FileExistsError where the name is taken."""
        ...

    def open(self, path: Path, *, write: bool = False) -> Handle:
        """An existing file. FileNotFoundError where there is none."""
        ...

    def close(self, handle: Handle) -> None:
        """Let go of a handle. It syncs nothing and never fails."""
        ...

    def size(self, handle: Handle) -> int:
        """The length in bytes."""
        ...

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """These bytes; fewer only where the file ends."""
        ...

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """Put all of `data` there, making the file longer if need be, or raise."""
        ...

    def preallocate(self, handle: Handle, size: int) -> None:
        """Make the file `size` bytes long with room on the medium; what is new reads as zeros. Never shortens."""
        ...

    def cut(self, handle: Handle, size: int) -> None:
        """Drop what is behind `size`. Only recovery (a torn tail) and the end of a preallocated segment need it."""
        ...

    def sync(self, handle: Handle) -> None:
        """fdatasync: return when all that was done to this file is durable. Never call it again after it raised."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in the same folder, atomically; a file that had it loses it."""
        ...

    def unlink(self, path: Path) -> None:
        """Take the name away. FileNotFoundError where there is none."""
        ...

    def files(self, folder: Path) -> list[Entry]:
        """The files of a folder, by name. FileNotFoundError where there is no such folder."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """The names of the folders in a folder, sorted. FileNotFoundError where there is no such folder."""
        ...

    def make_folder(self, path: Path) -> bool:
        """Make one folder; False where it is there already."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return when every change of names in this folder is durable."""
        ...

    def lock(self, path: Path) -> Handle | None:
        """Hold this file (made if need be) against other holders, of other processes too; None where one holds it."""
        ...

    def unlock(self, handle: Handle) -> None:
        """Let others hold it. The file stays."""
        ...

    def free(self, folder: Path) -> int:
        """Bytes that the medium still has for us."""
        ...


class RealDisk:
    """The machine's file system."""

    def create(self, path: Path) -> Handle:
        return Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE_FILE))

    def open(self, path: Path, *, write: bool = False) -> Handle:
        return Handle(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC))

    def close(self, handle: Handle) -> None:
        try:
            os.close(handle)
        except OSError:  # Linux has released it all the same; what matters was synced before
            return

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        found = os.pread(handle, length, offset)
        if len(found) == length or not found:
            return found
        parts = [found]
        while (missing := length - sum(map(len, parts))) > 0:
            more = os.pread(handle, missing, offset + length - missing)
            if not more:
                break
            parts.append(more)
        return b"".join(parts)

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        done = os.pwrite(handle, data, offset)
        while done < len(data):  # a signal or a full disk cut it short; the next call says which
            done += os.pwrite(handle, memoryview(data)[done:], offset + done)

    def preallocate(self, handle: Handle, size: int) -> None:
        """Written zeros, not only reserved blocks: turning reserved blocks into data would cost a journal commit each.

        Reserving comes first, so that a full disk is told before anything is written.
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

    def cut(self, handle: Handle, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: Handle) -> None:
        os.fdatasync(handle)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def files(self, folder: Path) -> list[Entry]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file(follow_symlinks=False):
                        found.append(Entry(entry.name, entry.stat(follow_symlinks=False).st_size))
                except FileNotFoundError:  # it went away while we looked
                    continue
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: Path) -> list[str]:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def make_folder(self, path: Path) -> bool:
        try:
            path.mkdir(mode=_MODE_FOLDER)
        except FileExistsError:
            return False
        return True

    def sync_folder(self, path: Path) -> None:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def lock(self, path: Path) -> Handle | None:
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE_FILE)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(handle, path):
                    return Handle(handle)
            except BlockingIOError:
                os.close(handle)
                return None
            except OSError:  # a lock that is held by a forgotten handle would keep us out until the process ends
                os.close(handle)
                raise
            os.close(handle)  # its last holder unlinked it; what we hold is nobody's lock

    def unlock(self, handle: Handle) -> None:
        self.close(handle)

    def free(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize


def _is_still(handle: int, path: Path) -> bool:
    try:
        there, here = path.stat(), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
