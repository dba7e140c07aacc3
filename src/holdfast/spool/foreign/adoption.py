"""Adopting a session of another program: an explicit act, which watches that no program writes it (SP-OWN-001).

A writer of v0.1 takes no lock. So a session is adopted only if its file stays as it is for a while, no process has it
open for writing, and it is still the same file when our lock is held.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.spool import channel
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk, RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.ownership import SessionOwner, owner_of
from holdfast.spool.files.session_markers import Adoption, write_adopted

PROCESSES: Final = Path("/proc")


class Fingerprint(msgspec.Struct, frozen=True, gc=False):
    """What changes when somebody writes a file or replaces it."""

    device: int
    inode: int
    size: int
    changed_ns: int


def fingerprint(path: Path) -> Fingerprint:
    status = path.lstat()
    return Fingerprint(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def foreign_sessions(root: Path, disk: Disk | None = None) -> list[SessionPaths]:
    """The sessions below a root, or in a channel's folder, that other programs may be writing."""
    disk = disk or RealDisk()
    folders = [root / name for name in disk.folders(root)] or [root]
    sessions = [
        SessionPaths(folder, folder.name, session)
        for folder in folders
        for session in channel.list_sessions(disk, folder)
    ]
    return [paths for paths in sessions if owner_of(disk, paths) is SessionOwner.FOREIGN]


def writers_of(path: Path) -> list[int]:
    """The processes that have the file open for writing, as far as we may see. Our own is not among them."""
    status, found = path.stat(), []
    for process in PROCESSES.iterdir() if PROCESSES.is_dir() else ():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                if _has_open_for_writing(process, status):
                    found.append(int(process.name))
    return sorted(found)


def _has_open_for_writing(process: Path, file: os.stat_result) -> bool:
    for handle in (process / "fd").iterdir():
        with suppress(OSError):
            status = handle.stat()
            if (status.st_dev, status.st_ino) == (file.st_dev, file.st_ino) and _is_writable(process, handle.name):
                return True
    return False


def _is_writable(process: Path, handle: str) -> bool:
    for line in (process / "fdinfo" / handle).read_text().splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return True


def adopt(paths: SessionPaths, before: Fingerprint, now_ms: int, disk: Disk | None = None) -> Adoption | Refused:
    """Make the session ours, if it is as it was when it was first looked at. The caller has let time pass since."""
    disk = disk or RealDisk()
    if (refusal := _why_not_quiet(paths, before)) is not None:
        return refusal
    lock = disk.lock(paths.lock)
    if lock is None:
        return Refused(
            "SP-007", f"session {paths.session} is open in another process", "end that program first", "SessionLocked"
        )
    try:
        adoption = Adoption(channel.read_status(disk, paths).highest, before.size)
        refusal = _why_not_quiet(paths, before)
        if refusal is not None:
            remove_file(disk, paths.lock)  # a lock file of ours would say that the session is ours
            return refusal
        write_adopted(disk, paths, adoption, now_ms)
        return adoption
    finally:
        disk.unlock(lock)


def _why_not_quiet(paths: SessionPaths, before: Fingerprint) -> Refused | None:
    if fingerprint(paths.plain) != before:
        return _refuse_growing(paths, "it has changed while it was watched")
    if writers := writers_of(paths.plain):
        return _refuse_growing(paths, f"process {writers[0]} has it open for writing")
    return None


def _refuse_growing(paths: SessionPaths, why: str) -> Refused:
    hint = "end the program that writes it, then adopt it again"
    return Refused("SP-OWN-001", f"session {paths.session} of channel {paths.channel}: {why}", hint, "SessionGrowing")
