"""The tables that hold rows, as every store has them: their keys, and what a page may be filtered by."""

from __future__ import annotations

from typing import Final

KEYS: Final = {"account": "owner", "hold": "event"}
"""Each table with its key column; also what `drop` empties."""
FILTERS: Final = {"account": {"owner"}, "hold": {"owner", "status", "event"}}
"""What a page may be filtered by."""
