"""How deep JSON is nested and how many values it holds, checked before it is decoded (SEC-001).

Decoding a few megabytes of empty lists takes a second, and no other request is served meanwhile; counting takes a
millisecond.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

_AS_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = tuple({ord("["): 1, ord("]"): -1}.get(byte, 0) for byte in range(256))
_CHUNK: Final = 1 << 16
_BEGINNING: Final = 1 << 16


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


def has_more_values(raw: bytes, values_max: int) -> bool:
    """Whether `raw` holds more values than `values_max`: keys of objects count as values.

    The beginning alone shows most of those that do: to count all of a few megabytes takes tens of milliseconds.
    """
    return (len(raw) > _BEGINNING and _holds_more(raw[:_BEGINNING], values_max)) or _holds_more(raw, values_max)


def _holds_more(raw: bytes, values_max: int) -> bool:
    """Every value but the first follows a comma, a colon or a bracket. Quotes are counted first: they bound the number
    of pieces that the text falls into."""
    if raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{") < values_max:
        return False
    if raw.count(b'"') - raw.count(b'\\"') > 2 * values_max:
        return True
    outside = b"".join(_outside_strings(raw))
    return sum(outside.count(sign) for sign in (b",", b":", b"[", b"{")) >= values_max


def count_pairs(raw: bytes) -> int:
    """How many keys valid JSON writes, the same one twice included: each is followed by the colon."""
    return b"".join(_outside_strings(raw)).count(b":")


def _brackets(raw: bytes) -> bytes:
    """All brackets outside of strings."""
    return b"".join(_outside_strings(raw)).translate(_AS_ONE_KIND, _NOT_BRACKETS)


def _outside_strings(raw: bytes) -> list[bytes]:
    """Without escapes, every second piece between quotes is a string."""
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    return bare.split(b'"')[::2]
