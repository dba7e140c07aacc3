"""The files of one open session: which exist, which one is written to, and how the next one begins.

A segment's name has its first sequence. It supersedes what an earlier file holds from that sequence on: so a file whose
sync failed is left behind (SP-CRASH-003) without being changed (SP-001).
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from holdfast.spool.files import line_search
from holdfast.spool.files.atomic_files import check_unchanged, remove_file
from holdfast.spool.files.disk import Disk, Handle
from holdfast.spool.files.line_search import RecordFile
from holdfast.spool.files.names import SPOOL, SessionPaths, parse_file_name, temp_path


class Segment(msgspec.Struct, frozen=True, gc=False):
    """One file of records."""

    path: Path
    first: int
    """The first sequence in it, or the next one where it is empty."""
    is_plain: bool
    generation: int = 0
    """Grows when compaction replaces the file under the same name: old offsets are not valid any more."""


class ReadView(msgspec.Struct, frozen=True, gc=False):
    """What readers may read: the files, the last spooled record, and where the spooled bytes of its file end."""

    segments: tuple[Segment, ...]
    spooled: int
    end: int

    @property
    def first_available(self) -> int:
        """The first record that is still here; the next sequence where none is."""
        return self.segments[0].first if self.segments else self.spooled + 1


class ActiveSegment(msgspec.Struct, gc=False):
    """The file that is being written."""

    handle: Handle
    segment: Segment
    data_end: int
    """Behind the last record."""
    size: int
    """Including what is preallocated."""

    @property
    def unfilled(self) -> int:
        return self.size - self.data_end


class SegmentLog:
    """One session's files. The writer appends and rotates, the maintainer drops old segments, readers use the view."""

    def __init__(
        self, disk: Disk, paths: SessionPaths, view: ReadView, active: ActiveSegment | None, segment_bytes: int | None
    ) -> None:
        self.disk, self.paths = disk, paths
        self.view = view
        self.active = active
        """None before the first segment and after a failure: the next record begins a new one."""
        self.segment_bytes = segment_bytes
        self._is_drop_unsynced = False
        """The last dropped file could come back in a crash, because the sync of the folder failed."""
        self._lock = threading.Lock()
        self.names_lock = threading.Lock()
        """Held while a name refers to another file than the view says. Readers open files under it."""

    def write(self, data: bytes) -> None:
        """Append lines, which do not count before they are committed."""
        active = self.active
        assert active is not None
        check_unchanged(self.disk, active.handle, active.segment.path, active.size)
        self.disk.write(active.handle, active.data_end, data)
        active.data_end += len(data)
        active.size = max(active.size, active.data_end)

    def commit(self, last: int, *, sync: bool) -> None:
        """Make durable what was written; readers see it only then (SP-005)."""
        active = self.active
        assert active is not None
        if sync:
            self.disk.sync(active.handle)
        with self._lock:
            self.view = ReadView(self.view.segments, last, active.data_end)

    def show_more(self, last: int, end: int) -> None:
        """Readers see the records up to `last`: another program has appended them."""
        with self._lock:
            self.view = ReadView(self.view.segments, last, end)

    def active_room(self) -> int | None:
        """Bytes that fit into the active file; None where it has no fixed size."""
        if self.active is None:
            return 0
        if self.segment_bytes is None:
            return None
        return 0 if self.active.segment.is_plain else self.active.unfilled

    def begin_segment(self, first: int, size: int) -> None:
        """Create the file for the records from `first` on. Its name is durable before its records count."""
        self.abandon_active()
        path = self.paths.segment(first)
        with self.names_lock:
            earlier = tuple(other for other in self.view.segments if other.first < first)
            handle = self._create_file(path, size, is_only=not earlier and bool(self.view.segments))
            segment = Segment(path, first, is_plain=False)
            self.active = ActiveSegment(handle, segment, 0, size)
            with self._lock:
                self.view = ReadView((*earlier, segment), self.view.spooled, 0)

    def _create_file(self, path: Path, size: int, *, is_only: bool) -> Handle:
        """A file of this name, durable. One that exists failed before it held anything spooled, and is replaced.

        Where it is the session's only file it keeps the name until the new one has it: after a crash between the two
        the session would have none, which is a loss (SP-LOSS-001). Elsewhere its space is given back first.
        """
        name = temp_path(path) if is_only else path
        remove_file(self.disk, name)
        handle = self.disk.create(name)
        try:
            if size:
                self.disk.preallocate(handle, size)
            self.disk.sync(handle)
            if is_only:
                self.disk.rename(name, path)
            self.disk.sync_folder(path.parent)
        except OSError:
            self.disk.close(handle)
            raise
        return handle

    def seal_active(self) -> None:
        """The active file is complete: free what was preallocated and not used.

        All its records are synced, so a failure here costs only space.
        """
        if self.active is None or not self.active.unfilled:
            return
        try:
            self.disk.truncate(self.active.handle, self.active.data_end)
            self.disk.sync(self.active.handle)
        except OSError:
            return

    def abandon_active(self) -> None:
        """Never write to the active file again."""
        if self.active is not None:
            self.disk.close(self.active.handle)
            self.active = None

    def replace_active(self, handle: Handle | None, first: int, end: int) -> None:
        """Continue in the file that took the active one's name; without a handle it is unknown which file has it."""
        assert self.active is not None
        old = self.active.segment
        self.abandon_active()
        segment = Segment(old.path, first, old.is_plain, old.generation + 1)
        if handle is not None:
            self.active = ActiveSegment(handle, segment, end, end)
        with self._lock:
            self.view = ReadView((*self.view.segments[:-1], segment), self.view.spooled, end)

    def drop_first(self) -> None:
        """Drop the oldest file, which is not the active one. Each drop is durable before the next."""
        if self._is_drop_unsynced:
            self.disk.sync_folder(self.paths.folder)
        with self.names_lock, self._lock:
            segment = self.view.segments[0]
            assert len(self.view.segments) > 1
            self.view = ReadView(self.view.segments[1:], self.view.spooled, self.view.end)
        self._is_drop_unsynced = True
        remove_file(self.disk, segment.path)
        self.disk.sync_folder(self.paths.folder)
        self._is_drop_unsynced = False

    def open_segment_with(self, sequence: int) -> tuple[Segment, int, int, Handle | None] | None:
        """The file that holds this spooled record, with its last record, its end and a handle to read it.

        None where no file holds it any more. The handle is None where the file should exist and does not.
        """
        with self.names_lock:
            view = self.view
            index = max((i for i, segment in enumerate(view.segments) if segment.first <= sequence), default=None)
            if index is None:
                return None
            segment, is_last = view.segments[index], index == len(view.segments) - 1
            last = view.spooled if is_last else min(view.spooled, view.segments[index + 1].first - 1)
            try:
                handle = self.disk.open(segment.path)
            except FileNotFoundError:
                return segment, last, 0, None
            return segment, last, view.end if is_last else self.disk.size(handle), handle


def segment_size(wanted: int, room: int) -> int:
    """The size of a new segment: at most half of what the cap leaves, since other sessions need room, too."""
    return min(wanted, room // 2)


def list_segments(disk: Disk, paths: SessionPaths) -> list[Segment]:
    """The session's files in order: the plain one first, then the segments by number."""
    plain, numbered = [], []
    for entry in disk.files(paths.folder):
        named = parse_file_name(entry.name)
        is_of_session = named is not None and named.session == paths.session and not named.is_temp
        if named is None or not is_of_session or named.kind != SPOOL or not entry.is_regular:
            continue
        if named.number is None:
            plain.append(Segment(paths.plain, _first_sequence(disk, paths, paths.plain), is_plain=True))
        else:
            numbered.append(Segment(paths.segment(named.number), named.number, is_plain=False))
    return plain + sorted(numbered, key=lambda segment: segment.first)


def _first_sequence(disk: Disk, paths: SessionPaths, path: Path) -> int:
    """The sequence of the first record; 1 where it cannot be read."""
    handle = disk.open(path)
    try:
        seen = line_search.record_at(RecordFile(disk, handle, paths.channel, paths.session), 0, disk.size(handle))
    finally:
        disk.close(handle)
    return 1 if seen is None else seen.sequence
