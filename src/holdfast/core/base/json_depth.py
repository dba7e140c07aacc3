"""How deep JSON is nested, checked before it is decoded: one guard for every reader (SEC-001)."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

_AS_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = tuple({ord("["): 1, ord("]"): -1}.get(byte, 0) for byte in range(256))
_CHUNK: Final = 1 << 16


def is_nested_deeper(raw: bytes, depth_max: int) -> bool:
    """Whether `raw` is nested deeper than `depth_max`; whether it is JSON at all is left to the decoder."""
    if raw.count(b"[") + raw.count(b"{") <= depth_max:
        return False
    brackets, depth = _brackets(raw), 0
    for start in range(0, len(brackets), _CHUNK):
        depths = list(accumulate(map(_STEP.__getitem__, brackets[start : start + _CHUNK]), initial=depth))
        if max(depths) > depth_max:
            return True
        depth = depths[-1]
    return False


def _brackets(raw: bytes) -> bytes:
    """All brackets outside of strings. Without escapes, every second piece between quotes is a string."""
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    return b"".join(bare.split(b'"')[::2]).translate(_AS_ONE_KIND, _NOT_BRACKETS)
