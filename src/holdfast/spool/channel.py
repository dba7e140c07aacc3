"""All sessions in a channel's folder: which exist, the status of each, and which may be deleted (SP-RET-001)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.core.policy import SpoolPolicy
from holdfast.spool.channel_quota import is_above_low_water, is_marked_full
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk, RealDisk
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.losses import Loss, find_losses
from holdfast.spool.files.names import (
    ACK,
    FINAL,
    QUARANTINE,
    RELEASED,
    SPOOL,
    SessionPaths,
    is_of_session,
    parse_file_name,
)
from holdfast.spool.files.ownership import SessionOwner, find_owner, owner_of
from holdfast.spool.files.record import CHANNEL_TERMINATED
from holdfast.spool.files.recover import WINDOW, FileVerdict, Tail, inspect_tail
from holdfast.spool.files.segment_log import Segment, list_segments
from holdfast.spool.files.session_markers import Markers, SessionFinal, read_ack, read_final, read_markers, write_final


class SessionStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The status of a session, read from its files without changing them."""

    paths: SessionPaths
    segments: tuple[Segment, ...]
    tail: Tail | None
    """Of the last file; None where there is none."""
    markers: Markers
    losses: tuple[Loss, ...]
    """What is known to be missing (SP-LOSS-001); empty where nothing is."""
    owner: SessionOwner
    bytes_used: int
    quarantined_bytes: int

    @property
    def acked(self) -> int:
        return self.markers.acked

    @property
    def final(self) -> SessionFinal | None:
        return self.markers.final

    @property
    def damage(self) -> str:
        """Why nothing may be written to it; empty where it is not damaged."""
        return "; ".join(map(str, self.losses))

    @property
    def is_foreign(self) -> bool:
        """Another program may be writing it: it is only read (SP-OWN-001)."""
        return self.owner is SessionOwner.FOREIGN

    @property
    def highest(self) -> int:
        """The last sequence that is known to have been used."""
        return max(self.last, self.markers.highest)

    @property
    def first(self) -> int:
        return self.segments[0].first if self.segments else self.acked + 1

    @property
    def last(self) -> int:
        return self.tail.last if self.tail is not None else self.acked

    @property
    def is_finished(self) -> bool:
        """Closed as final, or its last record is CHANNEL_TERMINATED. A BLOCK_FENCE alone does not finish it."""
        if self.final is not None:
            return True
        if self.tail is None or self.tail.last_record is None or self.tail.verdict is not FileVerdict.WHOLE:
            return False
        return self.tail.last_record.payload_type == CHANNEL_TERMINATED

    @property
    def is_reclaimable(self) -> bool:
        """SP-RET-001: finished, and the receiver has the last record. What an interrupted deletion left counts, too.

        Nothing that speaks of a loss is deleted (SP-LOSS-001), and nothing that another program may be writing.
        """
        if self.is_foreign or self.losses:
            return False
        if self.final is not None and self.final.is_delivered:
            return self.is_deletion_left
        return self.is_finished and self.acked >= self.highest

    @property
    def is_deletion_left(self) -> bool:
        """Of a delivered session there is more than what stays for ever: the holes that an operator has released."""
        return bool(self.segments) or self.acked > 0 or not self.markers.released


def read_status(disk: Disk, paths: SessionPaths, window: int = WINDOW) -> SessionStatus:
    """Read the status of one session."""
    markers = read_markers(disk, paths)
    segments = tuple(list_segments(disk, paths))
    tail = _tail(disk, paths, segments[-1], markers.highest, window) if segments else None
    own = [entry for entry in disk.files(paths.folder) if is_of_session(entry.name, paths.session)]
    quarantined = sum(entry.size for entry in own if entry.name.endswith(QUARANTINE))
    owner = find_owner(disk, paths, segments, own)
    return SessionStatus(
        paths=paths,
        segments=segments,
        tail=tail,
        markers=markers,
        losses=find_losses(
            markers if owner is not SessionOwner.FOREIGN else markers.without_unreadable(), segments, tail, own
        ),
        owner=owner,
        bytes_used=sum(entry.size for entry in own),
        quarantined_bytes=quarantined,
    )


def _tail(disk: Disk, paths: SessionPaths, segment: Segment, marked: int, window: int) -> Tail:
    handle = disk.open(segment.path)
    try:
        first = None if segment.is_plain else segment.first
        return inspect_tail(
            RecordFile(disk, handle, paths.channel, paths.session), first=first, marked=marked, window=window
        )
    finally:
        disk.close(handle)


def list_sessions(disk: Disk, folder: Path) -> list[str]:
    """The names of the sessions that have records, or a marker of them."""
    kinds = {SPOOL, ACK, FINAL, RELEASED}
    names = (parse_file_name(entry.name) for entry in disk.files(folder))
    return sorted({name.session for name in names if name is not None and name.kind in kinds and not name.is_temp})


def undelivered_sessions(root: Path | str, channel: str, disk: Disk | None = None) -> list[SessionStatus]:
    """The sessions of a channel that are not fully acked, oldest first, for replay (SP-CRASH-001).

    They are ordered by the time of their last record: one that is being written comes last. Nothing is changed.
    """
    disk, folder = disk or RealDisk(), Path(root) / channel
    try:
        names = list_sessions(disk, folder)
    except FileNotFoundError:
        return []
    present = [_status_if_present(disk, SessionPaths(folder, channel, session)) for session in names]
    waiting = [status for status in present if status is not None and status.highest > status.acked]
    return oldest_first(waiting)


def oldest_first(statuses: list[SessionStatus]) -> list[SessionStatus]:
    """By the time of their last record; sessions of one time by name."""
    return sorted(statuses, key=lambda status: (_last_utc(status), status.paths.session))


def _status_if_present(disk: Disk, paths: SessionPaths) -> SessionStatus | None:
    """None where the session was deleted meanwhile: it was delivered then."""
    try:
        return read_status(disk, paths)
    except FileNotFoundError:
        return None


def _last_utc(status: SessionStatus) -> str:
    return (
        status.tail.last_record.emitted_utc if status.tail is not None and status.tail.last_record is not None else ""
    )


def reclaim(disk: Disk, folder: Path, now_ms: int, *, except_session: str) -> int:
    """Delete the sessions that may be deleted; how many. One that is open is left alone."""
    deleted = 0
    for session in list_sessions(disk, folder):
        paths = SessionPaths(folder, folder.name, session)
        if session != except_session and _is_worth_reading(disk, paths):
            if owner_of(disk, paths) is SessionOwner.FOREIGN:
                continue  # no lock of ours says anything about its writer
            lock = disk.lock(paths.lock)
            if lock is None:
                continue
            try:
                status = read_status(disk, paths)
                if status.is_reclaimable:
                    delete_session(disk, status, now_ms)
                    deleted += 1
            finally:
                disk.unlock(lock)
    return deleted


def _is_worth_reading(disk: Disk, paths: SessionPaths) -> bool:
    """A session without any marker is not reclaimable: its records need not be read, and no lock file is made."""
    return read_final(disk, paths) is not None or read_ack(disk, paths) > 0


def delete_session(disk: Disk, status: SessionStatus, now_ms: int) -> None:
    """Delete a session whose last record the receiver has. Quarantined bytes stay, for an operator to look at.

    First `final` says that everything is delivered: from then on missing records are no loss. Records go next, oldest
    first, each durably before the next; then the ack; `final` goes last. So a crash never leaves what looks like an
    unfinished session, nor a loss. A process that died here may have changed names without a sync: the folder is synced
    before anything else. Where an operator has released holes, `released` and `final` stay: they speak of a loss.
    """
    paths = status.paths
    disk.sync_folder(paths.folder)
    if status.final is None or not status.final.is_delivered:
        reason = status.final.reason if status.final is not None else CHANNEL_TERMINATED
        write_final(disk, paths, SessionFinal(status.highest, reason, is_delivered=True), now_ms)
    for segment in status.segments:
        remove_file(disk, segment.path)
        disk.sync_folder(paths.folder)
    for path in (paths.ack, paths.adopted, paths.reserve):
        remove_file(disk, path)
    disk.sync_folder(paths.folder)
    remove_file(disk, paths.lock)
    if not status.markers.released:
        remove_file(disk, paths.final)
    disk.sync_folder(paths.folder)


def why_not_new_session(disk: Disk, folder: Path, policy: SpoolPolicy) -> Refused | None:
    """SP-RET-003: a channel at its cap starts no session until it is below the low-water mark."""
    used = sum(entry.size for entry in disk.files(folder))
    cap = policy.channel_bytes_max
    is_high = is_above_low_water(used, policy)
    if used + policy.reserve_bytes <= cap and not (is_high and is_marked_full(disk, folder)):
        return None
    hint = "deliver and ack what is there, run `holdfast spool compact`, or raise spool.channel_bytes_max"
    message = f"the channel uses {used} of {cap} bytes, no new session is started"
    return Refused("SP-RET-003", message, hint, "SpoolFull")
