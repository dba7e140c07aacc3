"""Which keys an object may have: the same on every store, and never a way out of a folder."""

from __future__ import annotations

import re
from typing import Final

KEY_BYTES_MAX: Final = 512
_KEY: Final = re.compile(r"(?!\.)[A-Za-z0-9_.=-]{1,200}(?:/(?!\.)[A-Za-z0-9_.=-]{1,200})*")


def check_key(key: str) -> str:
    """The key itself. Keys are made by programs, never by users: another one is a bug."""
    if len(key) > KEY_BYTES_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r:.80} cannot be the key of an object")
    return key
