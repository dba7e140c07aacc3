"""The channel's cap: how much more may be accepted, and the reserve that is always there for the last word.

The cap covers the whole folder, temp files and the reserve included (SP-RET-003). The reserve is a real file with real
blocks, so that the record which says "full" can be written when the cap, or the disk itself, is.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.policy.knobs import SpoolPolicy
from holdfast.spool.disk import Disk
from holdfast.spool.names import FULL, Place, parse
from holdfast.spool.whole import remove

PER_MILLE = 1_000


class Room:
    """Measures one channel's folder, on behalf of one session that writes to it."""

    def __init__(self, disk: Disk, place: Place, policy: SpoolPolicy) -> None:
        self._disk, self._place, self._policy = disk, place, policy
        self.used = 0
        """Bytes in the folder, as last measured."""
        self.session_used = 0
        """Of these, in this session's files."""
        self._free = self._reserve_used = 0
        self.has_reserve = False

    def measure(self, unfilled: int = 0) -> int:
        """Bytes that may still be accepted. `unfilled` is preallocated for us and therefore counted already."""
        entries, session, reserved = self._disk.files(self._place.folder), self._place.session, self._place.reserve.name
        self.used = sum([entry.size for entry in entries])
        self.session_used = sum([entry.size for entry in entries if _is_of(entry.name, session)])
        reserve = sum([entry.size for entry in entries if entry.name == reserved])
        self._reserve_used = reserve
        self.has_reserve = reserve == self._policy.reserve_bytes
        left = self._policy.channel_bytes_max - self._policy.reserve_bytes - (self.used - reserve)
        self._free = self._disk.free(self._place.folder)
        return max(0, min(left, self._free) + unfilled)

    def hold_reserve(self) -> None:
        """Take the reserve's blocks, if the cap has room for them. What a crash left of one goes first."""
        others = self.used - self._reserve_used
        if self.has_reserve or others + self._policy.reserve_bytes > self._policy.channel_bytes_max:
            return
        remove(self._disk, self._place.reserve)
        handle = self._disk.create(self._place.reserve)
        try:
            self._disk.preallocate(handle, self._policy.reserve_bytes)
            self._disk.sync(handle)
        finally:
            self._disk.close(handle)
        self.has_reserve = True

    def give_reserve(self) -> None:
        """Make room for the last word."""
        if remove(self._disk, self._place.reserve):
            self._disk.sync_folder(self._place.folder)
        self.has_reserve = False

    @property
    def is_low(self) -> bool:
        """At the low-water mark or above it, or the medium has no room for what may come."""
        is_high = self.used * PER_MILLE >= self._policy.channel_bytes_max * self._policy.reopen_below_per_mille
        return is_high or self._free < 2 * self._policy.reserve_bytes


def _is_of(name: str, session: str) -> bool:
    """Session ids have no `@`, and what follows one in a name begins with `@` or is one of our endings."""
    named = parse(name) if name.startswith(session) else None
    return named is not None and named.session == session


def is_marked_full(disk: Disk, folder: Path) -> bool:
    """The cap was reached, and nobody has found the folder below the low-water mark since."""
    return any(entry.name == FULL for entry in disk.files(folder))


def mark_full(disk: Disk, folder: Path) -> None:
    try:
        disk.close(disk.create(folder / FULL))
    except FileExistsError:
        return
    disk.sync_folder(folder)


def unmark_full(disk: Disk, folder: Path) -> None:
    if remove(disk, folder / FULL):
        disk.sync_folder(folder)
