"""Which files of the warm tier have lain there for a while (RET-002): looked through in the order of their digests.

A round through all of them is made in steps. Where a step ended is a number that anybody may keep for the next one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.core.values import ZERO_DIGEST, Digest
from holdfast.ports import PLACES, Aged, stands_at

_HEX = frozenset("0123456789abcdef")


def aged_below(root: Path, before_ms: int, at: int, most: int) -> tuple[list[Aged], int]:
    """Files from a place on that were last written or asked for by then, and the place to go on from.

    About so many names are looked at, one at least; folders count, too: a step is short also where files are few.
    """
    found, left = list[Aged](), most
    for prefix in _folders(str(root), at):
        if left <= 0:
            return found, int(prefix, 16) << 32
        folder = f"{root}/{prefix[:2]}/{prefix[2:]}"
        for name in _names(folder, len(ZERO_DIGEST) * 2):
            digest = Digest(bytes.fromhex(name))
            if not name.startswith(prefix) or stands_at(digest) < at:
                continue
            if left <= 0:
                return found, stands_at(digest)
            left -= 1
            with suppress(FileNotFoundError):
                seen = os.lstat(f"{folder}/{name}")
                if stat.S_ISREG(seen.st_mode) and seen.st_mtime_ns // 1_000_000 <= before_ms:
                    found.append((digest, seen.st_size))
        left -= 1
    return found, PLACES


def _folders(root: str, at: int) -> Iterator[str]:
    """The four signs that name each of the lower folders, from this place on."""
    first = f"{min(at, PLACES - 1) >> 32:04x}"
    for upper in _names(root, 2):
        if upper >= first[:2]:
            yield from (upper + lower for lower in _names(f"{root}/{upper}", 2) if upper + lower >= first)


def _names(folder: str, length: int) -> list[str]:
    """What is called like a part of a digest, in order; whatever else lies there is none of ours."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(name for name in os.listdir(folder) if len(name) == length and _HEX.issuperset(name))  # noqa: PTH208
    return []
