"""How often something is tried in this run: reduced for every day, full in `make test-all`."""

from __future__ import annotations

import os
from typing import Final

FULL: Final = os.environ.get("HOLDFAST_FULL") == "1"


def counts(quick: int, full: int) -> int:
    """The number for this run."""
    return full if FULL else quick
