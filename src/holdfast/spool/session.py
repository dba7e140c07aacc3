"""Opening a session: take the lock, recover what a crash left, read the ack, find the file to append to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.policy.settings import SpoolPolicy
from holdfast.spool import channel
from holdfast.spool.channel import SessionStatus
from holdfast.spool.files import recover
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SessionPaths, parse_file_name
from holdfast.spool.files.recover import FileVerdict, Tail
from holdfast.spool.files.segment_log import ActiveSegment, ReadView, Segment, SegmentLog, segment_size


class OpenSession(msgspec.Struct, frozen=True):
    """A session that we have locked."""

    lock: Handle
    log: SegmentLog
    status: SessionStatus
    """As it was before recovery."""
    quarantined: int
    """Lines, complete or torn, that recovery has moved to quarantine."""

    @property
    def damage(self) -> str:
        """Why nothing may be written to it; empty where it is not damaged."""
        tail = self.status.tail
        if tail is None or tail.verdict is not FileVerdict.DAMAGED or tail.invalid is None:
            return ""
        return describe_damage(tail)


def describe_damage(tail: Tail) -> str:
    """The hole in one sentence."""
    assert tail.invalid is not None
    first, last = tail.invalid.missing or (tail.last + 1, max(tail.last + 1, tail.durable_until))
    what = f"record {first} is" if first == last else f"records {first} to {last} are"
    return f"{what} damaged or missing from byte {tail.invalid.start} on: {tail.invalid.why}"


def open_session(
    disk: Disk, paths: SessionPaths, policy: SpoolPolicy, now_ms: int, *, segment_bytes: int | None, window: int
) -> OpenSession | Refused:
    """Lock the session, repair its tail, and make durable everything that is in it (SP-CRASH-001)."""
    make_folders(disk, paths.folder)
    lock = disk.lock(paths.lock)
    if lock is None:
        message = f"session {paths.session} of channel {paths.channel} is open in another process or spool"
        hint = "one writer per session: close it there, or begin a new session"
        return Refused("SP-007", message, hint, "SessionLocked")
    try:
        opened = _open_locked(disk, paths, policy, now_ms, lock, segment_bytes, window)
    except BaseException:
        disk.unlock(lock)
        raise
    if isinstance(opened, Refused):
        disk.unlock(lock)
    return opened


def make_folders(disk: Disk, folder: Path) -> None:
    """Make the channel's folder and its missing parents, with durable names."""
    try:
        disk.make_folder(folder)
    except FileNotFoundError:
        make_folders(disk, folder.parent)
        disk.make_folder(folder)
    with suppress(PermissionError):  # a parent that we may not read belongs to others
        disk.sync_folder(folder.parent)


def _open_locked(
    disk: Disk,
    paths: SessionPaths,
    policy: SpoolPolicy,
    now_ms: int,
    lock: Handle,
    segment_bytes: int | None,
    window: int,
) -> OpenSession | Refused:
    for entry in disk.files(paths.folder):
        parsed = parse_file_name(entry.name)
        if parsed is not None and parsed.session == paths.session and parsed.is_temp:
            remove_file(disk, paths.folder / entry.name)
    status = channel.read_status(disk, paths, window)
    if not status.segments and status.final is None:
        channel.reclaim(disk, paths.folder, now_ms, except_session=paths.session)
        if refusal := channel.why_not_new_session(disk, paths.folder, policy):
            return refusal
    active, quarantined = _recover_last_file(disk, paths, status)
    last = max(status.acked, _last_sequence(status.tail))
    view = ReadView(status.segments, last, active.data_end if active else status.tail.data_end if status.tail else 0)
    log = SegmentLog(disk, paths, view, active, segment_bytes)
    disk.sync_folder(paths.folder)
    if not status.segments and not status.is_finished:
        _create_first_file(log, last + 1, _quota_left(disk, paths.folder, policy))
    return OpenSession(lock, log, status, quarantined)


def _last_sequence(tail: Tail | None) -> int:
    """In a damaged file the records behind the hole count, too: an operator may release the hole."""
    if tail is None:
        return 0
    return tail.last_valid if tail.verdict is FileVerdict.DAMAGED else tail.last


def _recover_last_file(disk: Disk, paths: SessionPaths, status: SessionStatus) -> tuple[ActiveSegment | None, int]:
    """The last file, ready for appending; None where it is damaged, or lacks records that were acked."""
    if not status.segments or status.tail is None:
        return None, 0
    segment, tail, quarantined = status.segments[-1], status.tail, 0
    handle = disk.open(segment.path, write=True)
    try:
        if tail.verdict is FileVerdict.TORN:
            if remove_file(disk, paths.reserve):  # space for the tail's copy; allocated again later
                disk.sync_folder(paths.folder)
            quarantined = recover.quarantine(disk, handle, paths, tail)
        if tail.verdict is not FileVerdict.DAMAGED:
            recover.rewrite_unsynced(RecordFile(disk, handle, paths.channel, paths.session), tail)
            if status.acked <= tail.last:
                return ActiveSegment(handle, segment, tail.end, disk.size(handle)), quarantined
    except BaseException:
        disk.close(handle)
        raise
    disk.close(handle)
    return None, quarantined


def _quota_left(disk: Disk, folder: Path, policy: SpoolPolicy) -> int:
    used = sum(entry.size for entry in disk.files(folder))
    return max(0, policy.channel_bytes_max - policy.reserve_bytes - used)


def _create_first_file(log: SegmentLog, first: int, room: int) -> None:
    """The first file of a new session. Only a plain file that begins with 1 has the plain name."""
    if log.segment_bytes is not None or first != 1:
        return log.begin_segment(first, segment_size(log.segment_bytes or 0, room))
    path = log.paths.plain
    handle = log.disk.create(path)
    log.disk.sync(handle)
    log.disk.sync_folder(path.parent)
    segment = Segment(path, 1, is_plain=True)
    log.active = ActiveSegment(handle, segment, 0, 0)
    log.view = ReadView((segment,), 0, 0)
    return None
