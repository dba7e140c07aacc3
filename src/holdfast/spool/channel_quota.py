"""The channel's cap: how much more may be accepted, and the reserve for the record that ends a full channel.

The cap covers the whole folder, with temporary files and the reserve (SP-RET-003). The reserve is a real file with real
blocks, so that CHANNEL_TERMINATED can be written when the cap is reached or the disk itself is full.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.policy.settings import SpoolPolicy
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk
from holdfast.spool.files.names import FULL, SessionPaths, is_of_session

PER_MILLE = 1_000


class ChannelQuota:
    """Measures one channel's folder, on behalf of one session that writes to it."""

    def __init__(self, disk: Disk, paths: SessionPaths, policy: SpoolPolicy) -> None:
        self._disk, self._paths, self._policy = disk, paths, policy
        self.used_bytes = 0
        """Bytes in the folder, as last measured."""
        self.session_bytes = 0
        """Of these, in this session's files."""
        self._free = self._reserve_used = 0
        self.has_reserve = False

    def measure(self, unfilled: int = 0) -> int:
        """Bytes that may still be accepted. `unfilled` bytes are preallocated for us, and counted as used already."""
        entries, session, reserved = self._disk.files(self._paths.folder), self._paths.session, self._paths.reserve.name
        self.used_bytes = sum([entry.size for entry in entries])
        self.session_bytes = sum([entry.size for entry in entries if is_of_session(entry.name, session)])
        reserve = sum([entry.size for entry in entries if entry.name == reserved])
        self._reserve_used = reserve
        self.has_reserve = reserve == self._policy.reserve_bytes
        left = self._policy.channel_bytes_max - self._policy.reserve_bytes - (self.used_bytes - reserve)
        self._free = self._disk.free_bytes(self._paths.folder)
        return max(0, min(left, self._free) + unfilled)

    def allocate_reserve(self) -> None:
        """Allocate the reserve, if the cap has room for it. What a crash left of one is removed first."""
        others = self.used_bytes - self._reserve_used
        if self.has_reserve or others + self._policy.reserve_bytes > self._policy.channel_bytes_max:
            return
        remove_file(self._disk, self._paths.reserve)
        handle = self._disk.create(self._paths.reserve)
        try:
            self._disk.preallocate(handle, self._policy.reserve_bytes)
            self._disk.sync(handle)
        finally:
            self._disk.close(handle)
        self.has_reserve = True

    def release_reserve(self) -> None:
        """Free the reserve for the last record."""
        if remove_file(self._disk, self._paths.reserve):
            self._disk.sync_folder(self._paths.folder)
        self.has_reserve = False

    @property
    def is_above_low_water(self) -> bool:
        """At or above the low-water mark, or the medium has no room for what may come."""
        is_high = self.used_bytes * PER_MILLE >= self._policy.channel_bytes_max * self._policy.reopen_below_per_mille
        return is_high or self._free < 2 * self._policy.reserve_bytes


def is_marked_full(disk: Disk, folder: Path) -> bool:
    """The cap was reached, and the folder was not seen below the low-water mark since."""
    return any(entry.name == FULL for entry in disk.files(folder))


def mark_full(disk: Disk, folder: Path) -> None:
    try:
        disk.close(disk.create(folder / FULL))
    except FileExistsError:
        return
    disk.sync_folder(folder)


def unmark_full(disk: Disk, folder: Path) -> None:
    if remove_file(disk, folder / FULL):
        disk.sync_folder(folder)
