"""Opening a session: the lock, what a crash left, what the ack says, and the file to go on in."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.core.refusal import Refused
from holdfast.spool import channel, recover
from holdfast.spool.channel import Standing
from holdfast.spool.disk import Disk, Handle
from holdfast.spool.log import Log, Segment, Tape, View, segment_size
from holdfast.spool.names import Place, parse
from holdfast.spool.recover import Tail, Verdict
from holdfast.spool.seek import File
from holdfast.spool.whole import remove


class Opened(msgspec.Struct, frozen=True):
    """A session that is ours now."""

    lock: Handle
    log: Log
    found: Standing
    """As it was before we touched it."""
    quarantined: int
    """Records, or what looked like their beginnings, that were moved away."""

    @property
    def damage(self) -> str:
        """Why nothing may be written to it; empty where it is sound."""
        tail = self.found.tail
        if tail is None or tail.verdict is not Verdict.DAMAGED or tail.bad is None:
            return ""
        return damage_of(tail)


def damage_of(tail: Tail) -> str:
    """The hole in one sentence."""
    assert tail.bad is not None
    first, last = tail.bad.missing or (tail.last + 1, max(tail.last + 1, tail.mark))
    what = f"record {first} is" if first == last else f"records {first} to {last} are"
    return f"{what} damaged or missing from byte {tail.bad.start} on: {tail.bad.why}"


def open_session(
    disk: Disk, place: Place, policy: SpoolPolicy, now_ms: int, *, segment_bytes: int | None, window: int
) -> Opened | Refused:
    """Take the session, put its end in order, and make durable whatever is found in it (SP-CRASH-001)."""
    make_folders(disk, place.folder)
    lock = disk.lock(place.lock)
    if lock is None:
        says = f"session {place.session} of channel {place.channel} is open in another process or spool"
        return Refused(
            "SP-007", says, "one writer per session: close it there, or begin a new session", "SessionLocked"
        )
    try:
        opened = _taken(disk, place, policy, now_ms, lock, segment_bytes, window)
    except BaseException:
        disk.unlock(lock)
        raise
    if isinstance(opened, Refused):
        disk.unlock(lock)
    return opened


def make_folders(disk: Disk, folder: Path) -> None:
    """The channel's folder, with all above it that is missing, durable by name."""
    try:
        disk.make_folder(folder)
    except FileNotFoundError:
        make_folders(disk, folder.parent)
        disk.make_folder(folder)
    with suppress(PermissionError):  # a folder above that we may not read is not ours to sync
        disk.sync_folder(folder.parent)


def _taken(
    disk: Disk, place: Place, policy: SpoolPolicy, now_ms: int, lock: Handle, segment_bytes: int | None, window: int
) -> Opened | Refused:
    for entry in disk.files(place.folder):
        named = parse(entry.name)
        if named is not None and named.session == place.session and named.is_temp:
            remove(disk, place.folder / entry.name)
    found = channel.standing(disk, place, window)
    if not found.segments and found.final is None:
        channel.reclaim(disk, place.folder, now_ms, but=place.session)
        if no := channel.why_no_new_session(disk, place.folder, policy):
            return no
    tape, quarantined = _in_order(disk, place, found)
    last = max(found.acked, _last_kept(found.tail))
    view = View(found.segments, last, tape.end if tape else found.tail.data_end if found.tail else 0)
    log = Log(disk, place, view, tape, segment_bytes)
    disk.sync_folder(place.folder)
    if not found.segments and not found.is_finished:
        _begin(log, last + 1, _room_left(disk, place.folder, policy))
    return Opened(lock, log, found, quarantined)


def _last_kept(tail: Tail | None) -> int:
    """In a damaged file also what lies behind the hole is kept, for whoever releases it."""
    if tail is None:
        return 0
    return tail.highest if tail.verdict is Verdict.DAMAGED else tail.last


def _in_order(disk: Disk, place: Place, found: Standing) -> tuple[Tape | None, int]:
    """The last file, ready to be appended to; None where it must not be: damaged, or what was acked is not in it."""
    if not found.segments or found.tail is None:
        return None, 0
    segment, tail, quarantined = found.segments[-1], found.tail, 0
    handle = disk.open(segment.path, write=True)
    try:
        if tail.verdict is Verdict.TORN:
            if remove(disk, place.reserve):  # for a moment the tail is there twice; the reserve is held anew later
                disk.sync_folder(place.folder)
            quarantined = recover.quarantine(disk, handle, place, tail)
        if tail.verdict is not Verdict.DAMAGED:
            recover.make_sure(File(disk, handle, place.channel, place.session), tail)
            if found.acked <= tail.last:
                return Tape(handle, segment, tail.end, disk.size(handle)), quarantined
    except BaseException:
        disk.close(handle)
        raise
    disk.close(handle)
    return None, quarantined


def _room_left(disk: Disk, folder: Path, policy: SpoolPolicy) -> int:
    used = sum(entry.size for entry in disk.files(folder))
    return max(0, policy.channel_bytes_max - policy.reserve_bytes - used)


def _begin(log: Log, first: int, room: int) -> None:
    """The first file of a new session. A plain one has the plain name; all others say their first sequence."""
    if log.segment_bytes is not None or first != 1:
        return log.begin_segment(first, segment_size(log.segment_bytes or 0, room))
    path = log.place.plain
    handle = log.disk.create(path)
    log.disk.sync(handle)
    log.disk.sync_folder(path.parent)
    segment = Segment(path, 1, is_plain=True)
    log.tape = Tape(handle, segment, 0, 0)
    log.view = View((segment,), 0, 0)
    return None
