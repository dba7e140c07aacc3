"""Looks at a write-ahead log before SQLite does: SQLite takes a damaged frame for the log's end and drops the rest.

A crash leaves at most one transaction unfinished, since each is synced before the next begins. So what follows a frame
that does not fit may hold one commit, the unfinished one's. More of them were durable, and are not thrown away.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct, unpack
from typing import Final

from holdfast.core.refusal import Corrupt

_MAGIC: Final = 0x377F0682
"""The last bit says whether the sums are big endian."""
_HEADER, _FRAME = Struct(">8I"), Struct(">6I")
_MASK: Final = 0xFFFFFFFF
_Salt = tuple[int, int]
_Sum = tuple[int, int]


def check_log(database: Path) -> None:
    """Corrupt where the log of this database was damaged after it was synced (ENG-003)."""
    log = database.with_name(database.name + "-wal")
    raw = log.read_bytes() if log.exists() else b""
    lost = _commits_lost(raw)
    if lost:
        raise Corrupt(
            "ENG-003", f"{log} is damaged: {lost} transactions in it cannot be read", "restore it from a backup"
        )


def _commits_lost(raw: bytes) -> int:
    """Transactions that were synced and that SQLite would pass over."""
    if len(raw) <= _HEADER.size:
        return 0
    magic, _, page, _, *salt, one, two = _HEADER.unpack_from(raw)
    if magic & ~1 != _MAGIC or _sum((0, 0), raw[:24], magic) != (one, two):
        return max(1, len(raw) // (24 + 65_536))  # without its header the whole log would count for nothing
    frames = [raw[at : at + 24 + page] for at in range(_HEADER.size, len(raw) - 24 - page + 1, 24 + page)]
    whole, total = 0, (one, two)
    for frame in frames:
        total = _sum(_sum(total, frame[:8], magic), frame[24:], magic)
        if _FRAME.unpack_from(frame)[2:] != (*salt, *total):
            break
        whole += 1
    left = [_FRAME.unpack_from(frame) for frame in frames[whole:]]
    commits = sum(1 for _, commit, *own, _, _ in left if commit and own == salt)
    return commits if commits > 1 else 0


def _sum(before: _Sum, raw: bytes, magic: int) -> _Sum:
    """SQLite's own checksum, over pairs of words."""
    one, two = before
    words = iter(unpack(f"{'>' if magic & 1 else '<'}{len(raw) // 4}I", raw))
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two
