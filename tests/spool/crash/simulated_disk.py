"""A simulated disk behind the spool's one seam: it knows of every byte and every name whether a crash could take it.

A file is what was durable once plus the changes since, in order; so is a folder. A sync that returns makes what is
pending certain. A sync that fails makes it *lost*: it may be on the medium or not, for ever, and no later sync, which
would succeed, changes that; only writing the bytes anew does. Reads show everything, certain or not.

Names are milder, as the seam says: after a failed `sync_folder` they stay uncertain until one returns. That is an
assumption: where names are in a journal, a file system that failed to write it takes no more changes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from holdfast.spool.files.disk import Disk, FileEntry, Handle

ROOT = Path("/disk")
Content = tuple[tuple[str, bytes], ...]
"""The files of the channel's folder by name, all of it durable: what a power cut leaves."""


class Fate(IntEnum):
    PENDING = 0
    CERTAIN = 1
    LOST = 2


class Change:
    """One change of a file or of a folder, and whether a crash can take it."""

    __slots__ = ("at", "data", "fate", "verb")

    def __init__(self, verb: str, at: int, data: bytes, fate: Fate = Fate.PENDING) -> None:
        self.verb, self.at, self.data, self.fate = verb, at, data, fate

    def on(self, content: bytes) -> bytes:
        """The content with this change."""
        if self.verb == "truncate":
            return content[: self.at]
        if self.verb == "preallocate":
            return content.ljust(self.at, b"\0")
        return content[: self.at].ljust(self.at, b"\0") + self.data + content[self.at + len(self.data) :]


class Inode:
    """A file, with or without a name."""

    __slots__ = ("base", "changes", "live")

    def __init__(self, content: bytes = b"") -> None:
        self.base = self.live = content
        self.changes: list[Change] = []

    def change(self, change: Change) -> None:
        self.changes.append(change)
        self.live = change.on(self.live)

    @property
    def freed(self) -> int:
        """By so much it was longer when it was durable last."""
        return max(0, len(self.base) - len(self.live))

    def uncertain_changes(self) -> list[tuple[str, int, int]]:
        """What is uncertain about it: with its base and what it shows now, this is all there is to know."""
        return [(change.verb, change.at, int(change.fate)) for change in self.changes]

    def settle(self, fate: Fate) -> None:
        """What a sync means: everything pending is certain now, or lost."""
        for change in self.changes:
            if change.fate is Fate.PENDING:
                change.fate = fate
        while self.changes and self.changes[0].fate is Fate.CERTAIN:
            self.base = self.changes.pop(0).on(self.base)


class Naming:
    """One change of names: `name` means `inode` from now on (None: nothing), and `gone` means nothing."""

    __slots__ = ("gone", "inode", "name")

    def __init__(self, name: str, inode: Inode | None, gone: str = "") -> None:
        self.name, self.inode, self.gone = name, inode, gone

    def on(self, names: dict[str, Inode]) -> None:
        names.pop(self.gone, None)
        if self.inode is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.inode


class Fault(NamedTuple):
    """The `call`-th changing verb fails, `times` times in all; `how` much of it happens all the same."""

    call: int
    code: int = errno.EIO
    times: int = 1
    how: str = "nothing"


CHANGING = ("create", "write", "preallocate", "truncate", "sync", "rename", "unlink", "sync_folder")


class SimulatedDisk:
    """One channel's folder below ROOT. `point` is called after every change: there one may crash."""

    def __init__(self, content: Content | None = None, capacity: int | None = None) -> None:
        self.is_there = content is not None
        self.is_named = self.is_there
        """Whether the folder's own name is durable."""
        self.base: dict[str, Inode] = {name: Inode(raw) for name, raw in content or ()}
        self.names = dict(self.base)
        self.changes: list[Naming] = []
        self.handles: dict[int, Inode] = {}
        self.held: set[str] = set()
        self.capacity = capacity
        self.calls = 0
        self.verbs: list[str] = []
        self.faults: tuple[Fault, ...] = ()
        self.point: Callable[[], None] = lambda: None
        self.most_used = sum(len(raw) for _, raw in content or ())
        """The most bytes that the folder ever had."""
        self.failed_bytes = 0
        """Written or half written by calls that failed: they stay in their file, and are written again to another; or
        cut off by calls that failed, or that no sync covers any more: they may come back."""
        self._next = 3

    # -------------------------------------------------------------------------------------------- failing

    def _fails(self, verb: str) -> Fault | None:
        self.calls += 1
        self.verbs.append(verb)
        for fault in self.faults:
            if fault.call <= self.calls < fault.call + fault.times:
                return fault
        return None

    def _raise(self, fault: Fault) -> None:
        self.point()
        raise OSError(fault.code, "the simulated disk says no")

    def _grow(self, inode: Inode, size: int) -> None:
        """The medium has room for a file of this size, or says ENOSPC."""
        more = size - len(inode.live)
        if more > 0 and self.capacity is not None and self.free_bytes(ROOT) < more:
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def _grown(self) -> None:
        self.most_used = max(self.most_used, self.used)
        self.point()

    @property
    def used(self) -> int:
        return sum([len(inode.live) for inode in self.names.values()])

    # -------------------------------------------------------------------------------------------- files

    def _handle(self, inode: Inode) -> Handle:
        self._next += 1
        self.handles[self._next] = inode
        return Handle(self._next)

    def create(self, path: Path) -> Handle:
        if path.name in self.names:
            raise FileExistsError(errno.EEXIST, "it exists", path.name)
        fault, inode = self._fails("create"), Inode()
        if fault is None or fault.how == "all":
            self._name(Naming(path.name, inode))
        if fault is not None:
            self._raise(fault)
        self.point()
        return self._handle(inode)

    def open(self, path: Path, *, write: bool = False) -> Handle:
        inode = self.names.get(path.name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path.name)
        return self._handle(inode)

    def close(self, handle: Handle) -> None:
        self.handles.pop(handle, None)

    def size(self, handle: Handle) -> int:
        return len(self.handles[handle].live)

    def has_name(self, handle: Handle, path: Path) -> bool:
        return self.names.get(path.name) is self.handles[handle]

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        return self.handles[handle].live[offset : offset + length]

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        self._do("write", handle, offset, bytes(data), offset + len(data))

    def preallocate(self, handle: Handle, size: int) -> None:
        if size > self.size(handle):
            self._do("preallocate", handle, size, b"", size)

    def truncate(self, handle: Handle, size: int) -> None:
        self._do("truncate", handle, size, b"", 0)

    def _do(self, verb: str, handle: Handle, at: int, data: bytes, size: int) -> None:
        inode, fault = self.handles[handle], self._fails(verb)
        if fault is not None:
            if fault.how == "half" and verb == "write":
                inode.change(Change(verb, at, data[: len(data) // 2]))
            elif fault.how == "all":
                inode.change(Change(verb, at, data))
            self.failed_bytes += len(data) + inode.freed
            self._raise(fault)
        self._grow(inode, size)
        inode.change(Change(verb, at, data))
        self._grown()

    def sync(self, handle: Handle) -> None:
        inode, fault = self.handles[handle], self._fails("sync")
        if fault is not None:
            self.failed_bytes += sum(len(one.data) for one in inode.changes if one.fate is Fate.PENDING) + inode.freed
            inode.settle(Fate.LOST)
            self._raise(fault)
        inode.settle(Fate.CERTAIN)
        self.point()

    # -------------------------------------------------------------------------------------------- names

    def _name(self, change: Naming) -> None:
        self.changes.append(change)
        change.on(self.names)

    def _rename(self, verb: str, change: Naming) -> None:
        fault = self._fails(verb)
        if fault is None or fault.how == "all":
            self._name(change)
        if fault is not None:
            self._raise(fault)
        self.point()

    def rename(self, old: Path, new: Path) -> None:
        if old.name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old.name)
        self._rename("rename", Naming(new.name, self.names[old.name], old.name))

    def unlink(self, path: Path) -> None:
        if path.name not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path.name)
        self._rename("unlink", Naming(path.name, None))

    def files(self, folder: Path) -> list[FileEntry]:
        if not self.is_there:
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder.name)
        return [FileEntry(name, len(self.names[name].live)) for name in sorted(self.names)]

    def folders(self, folder: Path) -> list[str]:
        raise NotImplementedError("one channel only")

    def make_folder(self, path: Path) -> bool:
        if path.parent.name != ROOT.name:  # whole paths are slow to compare, and there is one channel only
            return False
        was, self.is_there = self.is_there, True
        return not was

    def sync_folder(self, path: Path) -> None:
        fault = self._fails("sync_folder")
        if fault is not None:
            self._raise(fault)
        if path.name == ROOT.name:
            self.is_named = self.is_there
        else:
            while self.changes:
                self.changes.pop(0).on(self.base)
        self.point()

    # -------------------------------------------------------------------------------------------- the rest

    def lock(self, path: Path) -> Handle | None:
        """Locks end with the process, their files stay. The folder is synced before a session's first file is made:
        so the name of the lock is taken for durable at once."""
        if path.name in self.held:
            return None
        self.held.add(path.name)
        if path.name not in self.names:
            self.names[path.name] = self.base[path.name] = Inode()
        return self._handle(Inode(path.name.encode()))

    def unlock(self, handle: Handle) -> None:
        inode = self.handles.pop(handle, None)
        if inode is not None:
            self.held.discard(inode.live.decode())

    def free_bytes(self, folder: Path) -> int:
        return 1 << 40 if self.capacity is None else max(0, self.capacity - self.used)

    def copy(self) -> SimulatedDisk:
        """The same disk once more, with all that is uncertain about it; nobody has anything open there."""
        twins: dict[int, Inode] = {}
        other = SimulatedDisk((), self.capacity)
        other.is_there, other.is_named = self.is_there, self.is_named
        other.base = {name: _twin(inode, twins) for name, inode in self.base.items()}
        other.names = {name: _twin(inode, twins) for name, inode in self.names.items()}
        for change in self.changes:
            inode = None if change.inode is None else _twin(change.inode, twins)
            other.changes.append(Naming(change.name, inode, change.gone))
        return other

    def content(self) -> Content:
        """What a reader sees now."""
        return tuple((name, self.names[name].live) for name in sorted(self.names))

    @property
    def is_certain(self) -> bool:
        """A power cut would change nothing."""
        return self.is_named and not self.changes and not any(inode.changes for inode in self.names.values())

    def kill(self) -> None:
        """The process dies, the machine stays up: handles and locks are gone, all bytes and names are as before."""
        self.handles.clear()
        self.held.clear()
        self.faults = ()


def _twin(inode: Inode, twins: dict[int, Inode]) -> Inode:
    found = twins.get(id(inode))
    if found is None:
        found = twins[id(inode)] = Inode(inode.base)
        found.live = inode.live
        found.changes = [Change(one.verb, one.at, one.data, one.fate) for one in inode.changes]
    return found


def is_a_disk(disk: SimulatedDisk) -> Disk:
    """Checked by the type checker: all the verbs are there."""
    return disk
