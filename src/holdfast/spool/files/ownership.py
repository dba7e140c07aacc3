"""Whose a session is: ours, or that of another program, which may be writing it right now without a lock (SP-OWN-001).

Every record of ours ends with a CRC, no record of v0.1 does. So the first valid record tells who began the file. What
has no valid record is ours only where our lock file lies beside it: we make no lock file for a session of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from holdfast.spool.files import record
from holdfast.spool.files.disk import Disk, FileEntry, Handle
from holdfast.spool.files.names import SessionPaths, is_of_session
from holdfast.spool.files.record import RecordSummary
from holdfast.spool.files.segment_log import Segment, list_segments
from holdfast.spool.files.session_markers import Adoption, read_adopted

END_BYTES: Final = 1 << 18
"""How much is read of the beginning and of the end."""


class SessionOwner(StrEnum):
    """Who may change a session's files."""

    OURS = "ours"
    ADOPTED = "adopted"
    """Begun by another program, and made ours by an operator."""
    FOREIGN = "foreign"
    """Another program may be writing it: it is only read."""


def owner_of(disk: Disk, paths: SessionPaths) -> SessionOwner:
    """Whose a session is. One that does not exist can be ours."""
    try:
        entries = [entry for entry in disk.files(paths.folder) if is_of_session(entry.name, paths.session)]
        return find_owner(disk, paths, list_segments(disk, paths), entries)
    except FileNotFoundError:
        return SessionOwner.OURS


def find_owner(
    disk: Disk, paths: SessionPaths, segments: Sequence[Segment], entries: Sequence[FileEntry]
) -> SessionOwner:
    """Judged from the first record of the first file; `entries` are those of the session."""
    if not segments or not segments[0].is_plain:
        return SessionOwner.OURS
    handle = disk.open(segments[0].path)
    try:
        first = _first_record(disk, paths, handle)
        is_locked_by_us = any(entry.name == paths.lock.name for entry in entries)
        if first.has_crc if first is not None else is_locked_by_us:
            return SessionOwner.OURS
        adoption = read_adopted(disk, paths)
        return SessionOwner.FOREIGN if adoption is None or _has_grown(disk, handle, adoption) else SessionOwner.ADOPTED
    finally:
        disk.close(handle)


def _first_record(disk: Disk, paths: SessionPaths, handle: Handle) -> RecordSummary | None:
    lines, _ = record.split_lines(disk.read(handle, 0, END_BYTES))
    parsed = (record.parse(line, paths.channel, paths.session) for line in lines)
    return next((each for each in parsed if isinstance(each, RecordSummary)), None)


def _has_grown(disk: Disk, handle: Handle, adoption: Adoption) -> bool:
    """Whether its program has written on since it was adopted: then it is not ours. What we append has a CRC."""
    size = disk.size(handle)
    if size <= adoption.size:
        return False
    lines, _ = record.split_lines(disk.read(handle, max(0, size - END_BYTES), END_BYTES).rstrip(b"\0"))
    return not lines or not record.has_crc_field(lines[-1])
