"""The outcome of one check of `holdfast doctor`."""

from __future__ import annotations

from typing import NamedTuple


class HostFinding(NamedTuple):
    """What was checked, whether it is good, and how to repair it if not."""

    is_good: bool
    what: str
    message: str
    hint: str = ""
