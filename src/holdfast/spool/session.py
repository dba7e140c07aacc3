"""Opening a session: take the lock, recover what a crash left, read the ack, find the file to append to."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.policy import SpoolPolicy
from holdfast.spool import channel
from holdfast.spool.channel import SessionStatus
from holdfast.spool.files import line_search, recover
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SessionPaths, parse_file_name
from holdfast.spool.files.ownership import SessionOwner, owner_of
from holdfast.spool.files.recover import FileVerdict, Tail
from holdfast.spool.files.segment_log import ActiveSegment, ReadView, Segment, SegmentLog, segment_size
from holdfast.spool.files.session_markers import read_ack


class OpenSession(msgspec.Struct, frozen=True):
    """A session that we have locked, or one of another program that is only read."""

    lock: Handle | None
    """None where there is nothing of ours to lock: another program's session, without a folder for our markers."""
    log: SegmentLog
    status: SessionStatus
    """As it was before recovery."""
    quarantined: int
    """Lines, complete or torn, that recovery has moved to quarantine."""
    marker_paths: SessionPaths | None
    """Where its ack is stored; None: nowhere."""
    acked: int
    """What the ack there says; without a place of our own, what its program's ack says."""


def open_session(
    disk: Disk,
    paths: SessionPaths,
    policy: SpoolPolicy,
    now_ms: int,
    *,
    segment_bytes: int | None,
    window: int,
    markers: Path | None = None,
) -> OpenSession | Refused:
    """Lock the session, repair its tail, and make durable everything that is in it (SP-CRASH-001).

    A session that another program may be writing is opened for reading alone: nothing in its folder is changed, our
    markers for it are in the folder `markers` (SP-OWN-001).
    """
    if owner_of(disk, paths) is SessionOwner.FOREIGN:
        return open_foreign(disk, paths, window, markers)
    make_folders(disk, paths.folder)
    lock = disk.lock(paths.lock)
    if lock is None:
        return _refuse_locked(paths)
    try:
        opened = _open_locked(disk, paths, policy, now_ms, lock, segment_bytes, window)
    except BaseException:
        disk.unlock(lock)
        raise
    if isinstance(opened, Refused):
        disk.unlock(lock)
    return opened


def _refuse_locked(paths: SessionPaths) -> Refused:
    message = f"session {paths.session} of channel {paths.channel} is open in another process or spool"
    hint = "one writer per session: close it there, or begin a new session"
    return Refused("SP-007", message, hint, "SessionLocked")


def open_foreign(disk: Disk, paths: SessionPaths, window: int, markers: Path | None) -> OpenSession | Refused:
    """Another program's session, as it is now. With a folder for our markers, one reader of ours has it at a time."""
    if markers is None:
        status = channel.read_status(disk, paths, window)
        return OpenSession(None, _foreign_log(disk, status), status, 0, None, status.acked)
    marker_paths = SessionPaths(markers / paths.channel, paths.channel, paths.session)
    make_folders(disk, marker_paths.folder)
    lock = disk.lock(marker_paths.lock)
    if lock is None:
        return _refuse_locked(paths)
    try:
        status = channel.read_status(disk, paths, window)
        return OpenSession(lock, _foreign_log(disk, status), status, 0, marker_paths, read_ack(disk, marker_paths))
    except BaseException:
        disk.unlock(lock)
        raise


def _foreign_log(disk: Disk, status: SessionStatus) -> SegmentLog:
    """Complete records alone: what comes behind the last one may be a record that is being written."""
    tail = status.tail
    if tail is None:  # it is gone since it was looked at
        return SegmentLog(disk, status.paths, ReadView((), 0, 0), None, None)
    is_damaged = tail.verdict is FileVerdict.DAMAGED
    end = tail.data_end if is_damaged else tail.end
    return SegmentLog(disk, status.paths, ReadView(status.segments, last_sequence(tail), end), None, None)


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
    status = channel.read_status(disk, paths, window)
    if status.is_foreign:  # it appeared, or has grown, since it was looked at
        message = f"another program writes session {paths.session}"
        return Refused("SP-OWN-001", message, "open it again: it can be read", "SessionForeign")
    _remove_temporary_files(disk, paths)
    if not status.segments and status.final is None and not status.losses:
        channel.reclaim(disk, paths.folder, now_ms, except_session=paths.session)
        if refusal := channel.why_not_new_session(disk, paths.folder, policy):
            return refusal
    active, quarantined = _recover_last_file(disk, paths, status)
    last = max(status.markers.highest, last_sequence(status.tail))
    view = ReadView(status.segments, last, active.data_end if active else status.tail.data_end if status.tail else 0)
    log = SegmentLog(disk, paths, view, active, segment_bytes)
    disk.sync_folder(paths.folder)
    if not status.segments and not status.is_finished and not status.losses:
        _create_first_file(log, _quota_left(disk, paths.folder, policy))
    return OpenSession(lock, log, status, quarantined, paths, status.acked)


def _remove_temporary_files(disk: Disk, paths: SessionPaths) -> None:
    for entry in disk.files(paths.folder):
        parsed = parse_file_name(entry.name)
        if parsed is not None and parsed.session == paths.session and parsed.is_temp:
            remove_file(disk, paths.folder / entry.name)


def last_sequence(tail: Tail | None) -> int:
    """In a damaged file the records behind the hole count, too: an operator may release the hole."""
    if tail is None:
        return 0
    return tail.last_valid if tail.verdict is FileVerdict.DAMAGED else tail.last


def _recover_last_file(disk: Disk, paths: SessionPaths, status: SessionStatus) -> tuple[ActiveSegment | None, int]:
    """The last file, ready for appending; None where the session is damaged: then nothing is changed."""
    if not status.segments or status.tail is None or status.losses:
        return None, 0
    segment, tail, quarantined = status.segments[-1], status.tail, 0
    handle = disk.open(segment.path, write=True)
    try:
        if tail.verdict is FileVerdict.TORN:
            if remove_file(disk, paths.reserve):  # space for the tail's copy; allocated again later
                disk.sync_folder(paths.folder)
            quarantined = recover.quarantine(disk, handle, segment.path, paths, tail)
        recover.rewrite_unsynced(RecordFile(disk, handle, paths.channel, paths.session), tail)
        return ActiveSegment(handle, segment, tail.end, disk.size(handle)), quarantined
    except BaseException:
        disk.close(handle)
        raise


def _quota_left(disk: Disk, folder: Path, policy: SpoolPolicy) -> int:
    used = sum(entry.size for entry in disk.files(folder))
    return max(0, policy.channel_bytes_max - policy.reserve_bytes - used)


def _create_first_file(log: SegmentLog, room: int) -> None:
    """The first file of a new session."""
    if log.segment_bytes is not None:
        return log.begin_segment(1, segment_size(log.segment_bytes, room))
    path = log.paths.plain
    handle = log.disk.create(path)
    log.disk.sync(handle)
    log.disk.sync_folder(path.parent)
    segment = Segment(path, 1, is_plain=True)
    log.active = ActiveSegment(handle, segment, 0, 0)
    log.view = ReadView((segment,), 0, 0)
    return None


def oldest_unacked_age(opened: OpenSession) -> list[tuple[int, int]]:
    """The time of the oldest record that is not acked, as it is in the file."""
    log = opened.log
    oldest = max(opened.acked + 1, log.view.first_available)
    located = log.open_segment_with(oldest) if oldest <= log.view.spooled else None
    if located is None or (handle := located[3]) is None:
        return []
    file, end = RecordFile(log.disk, handle, log.paths.channel, log.paths.session), located[2]
    try:
        record = line_search.record_at(file, line_search.find_sequence(file, oldest, end), end)
        time_s = None if record is None else datetime.fromisoformat(record.emitted_utc).timestamp()
    except (ValueError, OverflowError):  # v0.1 senders may write any text, also a year out of range
        time_s = None
    finally:
        log.disk.close(handle)
    return [] if time_s is None else [(log.view.spooled, int(time_s * 1_000))]
