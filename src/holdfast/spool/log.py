"""The files of one open session: which there are, which one is written to, and how it is followed by the next.

A segment's name says its first sequence. It replaces whatever an earlier file holds from that sequence on: that is how
a file whose sync failed is left behind (SP-CRASH-003) without being touched (SP-001).
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from holdfast.spool import seek
from holdfast.spool.disk import Disk, Handle
from holdfast.spool.names import SPOOL, Place, parse
from holdfast.spool.seek import File
from holdfast.spool.whole import remove


class Segment(msgspec.Struct, frozen=True, gc=False):
    """One file of records."""

    path: Path
    first: int
    """The first sequence in it, or the next one where it is empty."""
    is_plain: bool
    generation: int = 0
    """Grows when compaction puts another file under the same name: offsets mean something else then."""


class View(msgspec.Struct, frozen=True, gc=False):
    """What readers may see: files, the last spooled record and where its file's spooled bytes end."""

    segments: tuple[Segment, ...]
    spooled: int
    end: int

    @property
    def first_available(self) -> int:
        """The first record that is still here, or the next one where none is."""
        return self.segments[0].first if self.segments else self.spooled + 1


class Tape(msgspec.Struct, gc=False):
    """The file that is written to."""

    handle: Handle
    segment: Segment
    end: int
    """Behind the last record."""
    size: int
    """With what is preallocated."""

    @property
    def unfilled(self) -> int:
        return self.size - self.end


class Log:
    """One session's files. The writer appends and rotates; the keeper drops old segments; readers take the view."""

    def __init__(self, disk: Disk, place: Place, view: View, tape: Tape | None, segment_bytes: int | None) -> None:
        self.disk, self.place = disk, place
        self.view = view
        self.tape = tape
        """None before the first segment, and after a failure: then the next record begins a new one."""
        self.segment_bytes = segment_bytes
        self._is_drop_unsure = False
        """The last file that was let go could come back in a crash, because the folder's sync failed."""
        self._lock = threading.Lock()
        self.names = threading.Lock()
        """Held while a name changes its file and the view does not say so yet: readers open files under it."""

    def append(self, data: bytes, last: int, *, sync: bool) -> None:
        """Put lines behind the last one and make them durable; only then do readers see them (SP-005)."""
        tape = self.tape
        assert tape is not None
        self.disk.write(tape.handle, tape.end, data)
        if sync:
            self.disk.sync(tape.handle)
        tape.end += len(data)
        tape.size = max(tape.size, tape.end)
        with self._lock:
            self.view = View(self.view.segments, last, tape.end)

    def room_in_tape(self) -> int | None:
        """Bytes that fit into the current file; None where it simply grows."""
        if self.tape is None:
            return 0
        if self.segment_bytes is None:
            return None
        return 0 if self.tape.segment.is_plain else self.tape.unfilled

    def begin_segment(self, first: int, size: int) -> None:
        """A new file for the records from `first` on. Its name is durable before anything in it counts.

        A file of that name can only be one that failed before it held anything spooled: it goes.
        """
        self.leave_tape()
        path = self.place.segment(first)
        with self.names:
            remove(self.disk, path)
            handle = self.disk.create(path)
            try:
                if size:
                    self.disk.preallocate(handle, size)
                self.disk.sync(handle)
                self.disk.sync_folder(path.parent)
            except OSError:
                self.disk.close(handle)
                raise
            segment = Segment(path, first, is_plain=False)
            self.tape = Tape(handle, segment, 0, size)
            with self._lock:
                before = tuple(one for one in self.view.segments if one.first < first)
                self.view = View((*before, segment), self.view.spooled, 0)

    def seal_tape(self) -> None:
        """The current file is complete: give back what was preallocated and not needed.

        Everything in it is synced, so a failure here costs only space.
        """
        if self.tape is None or not self.tape.unfilled:
            return
        try:
            self.disk.cut(self.tape.handle, self.tape.end)
            self.disk.sync(self.tape.handle)
        except OSError:
            return

    def leave_tape(self) -> None:
        """Never write to the current file again."""
        if self.tape is not None:
            self.disk.close(self.tape.handle)
            self.tape = None

    def swap_tape(self, handle: Handle | None, first: int, end: int) -> None:
        """Go on in the file that took the current one's name; without a handle nobody knows which one has it now."""
        assert self.tape is not None
        old = self.tape.segment
        self.leave_tape()
        segment = Segment(old.path, first, old.is_plain, old.generation + 1)
        if handle is not None:
            self.tape = Tape(handle, segment, end, end)
        with self._lock:
            self.view = View((*self.view.segments[:-1], segment), self.view.spooled, end)

    def drop_first(self) -> None:
        """Let go of the oldest file, which is not the one written to. Oldest first, each for good before the next."""
        if self._is_drop_unsure:
            self.disk.sync_folder(self.place.folder)
        with self.names, self._lock:
            segment = self.view.segments[0]
            assert len(self.view.segments) > 1
            self.view = View(self.view.segments[1:], self.view.spooled, self.view.end)
        self._is_drop_unsure = True
        remove(self.disk, segment.path)
        self.disk.sync_folder(self.place.folder)
        self._is_drop_unsure = False

    def open_for(self, sequence: int) -> tuple[Segment, int, int, Handle | None] | None:
        """The file that holds this spooled record: with its last record, its end and a handle to read it.

        None where no file does any more; without a handle where the file should be there and is not.
        """
        with self.names:
            view = self.view
            index = max((i for i, one in enumerate(view.segments) if one.first <= sequence), default=None)
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
    """What a new segment may take at once: never more than half of what the cap leaves, others need room, too."""
    return min(wanted, room // 2)


def segments_of(disk: Disk, place: Place) -> list[Segment]:
    """The session's files in order: the plain one first, then the segments as numbered."""
    plain, numbered = [], []
    for entry in disk.files(place.folder):
        named = parse(entry.name)
        if named is None or named.session != place.session or named.kind != SPOOL or named.is_temp:
            continue
        if named.number is None:
            plain.append(Segment(place.plain, _first_in(disk, place, place.plain), is_plain=True))
        else:
            numbered.append(Segment(place.segment(named.number), named.number, is_plain=False))
    return plain + sorted(numbered, key=lambda segment: segment.first)


def _first_in(disk: Disk, place: Place, path: Path) -> int:
    """The sequence of the first record; 1 where there is none to be read."""
    handle = disk.open(path)
    try:
        seen = seek.seen_at(File(disk, handle, place.channel, place.session), 0, disk.size(handle))
    finally:
        disk.close(handle)
    return 1 if seen is None else seen.sequence
