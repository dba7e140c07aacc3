"""How deep a message is nested, before anything decodes it (SEC-001)."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from holdfast.core.refusal import Refused

_AS_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEP: Final = tuple({ord("["): 1, ord("]"): -1}.get(sign, 0) for sign in range(256))
_STRETCH: Final = 1 << 16


def why_not_nested(raw: bytes, depth_max: int) -> Refused | None:
    """The refusal of a message nested deeper than `depth_max`; whether it is JSON at all is for the decoder to say."""
    if raw.count(b"[") + raw.count(b"{") <= depth_max:
        return None
    brackets, depth = _brackets(raw), 0
    for at in range(0, len(brackets), _STRETCH):
        depths = list(accumulate(map(_STEP.__getitem__, brackets[at : at + _STRETCH]), initial=depth))
        if max(depths) > depth_max:
            says = f"nested deeper than {depth_max} levels"
            return Refused("SEC-001", says, "no method needs so many", "InvalidRequest")
        depth = depths[-1]
    return None


def _brackets(raw: bytes) -> bytes:
    """All brackets outside of strings. Without what is escaped, every second piece between quotes is a string."""
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    return b"".join(bare.split(b'"')[::2]).translate(_AS_ONE_KIND, _NOT_BRACKETS)
