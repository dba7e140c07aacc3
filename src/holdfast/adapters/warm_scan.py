"""Finds files of the warm tier that are old enough to be orphans (RET-002), in the order of their digests.

A scan of all files is made in steps. The position at which a step ends is a number; the caller keeps it for the next.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.core.base.values import ZERO_DIGEST, Digest
from holdfast.ports import SCAN_END, AgedBlob, scan_position

_HEX = frozenset("0123456789abcdef")


def scan_aged(root: Path, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
    """Files from a position on that were last written or requested before `before_ms`, and the next position.

    At most about `scan_max` names are read, and at least one. Folders count as well, so a step is short even if there
    are few files.
    """
    aged, left = list[AgedBlob](), scan_max
    for prefix in _folders(str(root), position):
        if left <= 0:
            return aged, int(prefix, 16) << 32
        folder = f"{root}/{prefix[:2]}/{prefix[2:]}"
        for name in _names(folder, len(ZERO_DIGEST) * 2):
            digest = Digest(bytes.fromhex(name))
            if not name.startswith(prefix) or scan_position(digest) < position:
                continue
            if left <= 0:
                return aged, scan_position(digest)
            left -= 1
            with suppress(FileNotFoundError):
                status = os.lstat(f"{folder}/{name}")
                if stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 <= before_ms:
                    aged.append((digest, status.st_size))
        left -= 1
    return aged, SCAN_END


Scanned = tuple[list[AgedBlob], int]
"""What a step of a scan found, and the next position."""


def merge_scans(one: Scanned, other: Scanned) -> Scanned:
    """Two scans from the same position as one, which ends where the first of them does."""
    following = min(one[1], other[1])
    found = {digest: size for digest, size in [*one[0], *other[0]] if scan_position(digest) < following}
    return sorted(found.items()), following


def _folders(root: str, position: int) -> Iterator[str]:
    """The four hex digits that name each lower folder, from this position on."""
    first = f"{min(position, SCAN_END - 1) >> 32:04x}"
    for upper in _names(root, 2):
        if upper >= first[:2]:
            yield from (upper + lower for lower in _names(f"{root}/{upper}", 2) if upper + lower >= first)


def _names(folder: str, length: int) -> list[str]:
    """Entries that are named like a part of a digest, in order; other entries are not ours."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(name for name in os.listdir(folder) if len(name) == length and _HEX.issuperset(name))  # noqa: PTH208
    return []
