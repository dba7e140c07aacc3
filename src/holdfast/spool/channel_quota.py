"""The channel's cap: how much more may be accepted, and the reserve for the record that ends a full channel.

The cap covers the whole folder, with temporary files and the reserve (SP-RET-003). The reserve is a real file with real
blocks, so that CHANNEL_TERMINATED can be written when the cap is reached or the disk itself is full.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.core.policy import SpoolPolicy
from holdfast.spool.files.atomic_files import remove_file
from holdfast.spool.files.disk import Disk
from holdfast.spool.files.names import FULL, SessionPaths, is_of_session

PER_MILLE = 1_000
ROOM_PARTS = 20
"""A channel that opens again has at least a twentieth of its room free."""


class ChannelQuota:
    """Measures one channel's folder, on behalf of one session that writes to it."""

    def __init__(self, disk: Disk, paths: SessionPaths, policy: SpoolPolicy) -> None:
        self._disk, self._paths, self._policy = disk, paths, policy
        self.channel_bytes_max = policy.channel_bytes_max
        self.used_bytes = 0
        """Bytes in the folder, as last measured."""
        self.session_bytes = 0
        """Of these, in this session's files."""
        self.free_bytes = self._reserve_used = 0
        self.is_disk_the_limit = False
        """The disk itself has less room than the cap leaves."""
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
        self.free_bytes = self._disk.free_bytes(self._paths.folder)
        self.is_disk_the_limit = self.free_bytes < left
        return max(0, min(left, self.free_bytes) + unfilled)

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
    def must_stay_full(self) -> bool:
        """At or above the low-water mark, or the medium has no room for what may come."""
        policy, others = self._policy, self.used_bytes - self._reserve_used
        is_high = is_above_low_water(others, policy) or others * PER_MILLE >= _reopen_below(policy)
        return is_high or self.free_bytes < 2 * policy.reserve_bytes

    def describe_limit(self, waiting_bytes: int) -> str:
        """Which limit is reached, with its numbers: the disk's, or the cap's. What waits for the writer counts."""
        if self.is_disk_the_limit:
            return f"the disk is full, {max(0, self.free_bytes - waiting_bytes)} bytes are left"
        return f"{self.used_bytes + waiting_bytes} of {self._policy.channel_bytes_max} bytes are used"


def is_above_low_water(used: int, policy: SpoolPolicy) -> bool:
    return used * PER_MILLE >= policy.channel_bytes_max * policy.reopen_below_per_mille


def _reopen_below(policy: SpoolPolicy) -> int:
    """Per mille of bytes, without the reserve. Of a small cap the reserve is much: where 90 % of the cap leave hardly
    any room beside it, 90 % of the room count. Else a channel would end again with every record."""
    usable, share = policy.channel_bytes_max - policy.reserve_bytes, policy.reopen_below_per_mille
    leaves_room = policy.channel_bytes_max * share * ROOM_PARTS <= usable * PER_MILLE * (ROOM_PARTS - 1)
    return (policy.channel_bytes_max if leaves_room else usable) * share


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
