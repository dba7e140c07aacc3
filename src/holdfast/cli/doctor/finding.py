"""One thing that was looked at: whether it is as it should be, and what to do if not."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing looked at."""

    is_good: bool
    what: str
    says: str
    hint: str = ""
