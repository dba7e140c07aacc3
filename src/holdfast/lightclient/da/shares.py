"""Shares (DA-001): bytes cut into pieces of 512, the last one padded with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SHARE_BYTES: Final = 512


def share_count(length: int) -> int:
    """How many shares `length` bytes make."""
    return -(-length // SHARE_BYTES)


def split(raw: bytes) -> list[bytes]:
    """The shares of these bytes, in order."""
    whole = len(raw) // SHARE_BYTES * SHARE_BYTES
    shares = [raw[at : at + SHARE_BYTES] for at in range(0, whole, SHARE_BYTES)]
    if rest := raw[whole:]:
        shares.append(rest.ljust(SHARE_BYTES, b"\x00"))
    return shares


def why_not_shares(shares: Sequence[bytes], start: int, length: int) -> str | None:
    """Why these cannot be the shares from `start` on of `length` bytes; None where they can."""
    total = share_count(length)
    if not 0 <= start < start + len(shares) <= total:
        return f"shares {start} to {start + len(shares) - 1} of {total}"
    if any(len(share) != SHARE_BYTES for share in shares):
        return f"a share has {SHARE_BYTES} bytes"
    end = length - (total - 1) * SHARE_BYTES
    if start + len(shares) == total and shares[-1][end:].strip(b"\x00"):
        return "the last share is not padded with zeros"
    return None
