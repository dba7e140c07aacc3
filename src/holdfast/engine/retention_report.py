"""The report of a retention run (RET-003): what was freed, what was kept and why, and how far it has come."""

from __future__ import annotations

import msgspec


class RetentionReport(msgspec.Struct):
    """What one bounded run of a pass has done, or in a dry run would have done."""

    name: str
    is_dry: bool = False
    looked: int = 0
    """Results that were candidates."""
    dropped: int = 0
    freed_bytes: int = 0
    lost: int = 0
    """Of these, the results whose bytes no other tier holds."""
    kept: dict[str, int] = {}
    """How many were skipped, by the reason."""
    deleted: int = 0
    """Rows or files that were deleted."""
    until: int = 0
    """Every result up to this event was examined."""
    is_done: bool = True
    """Nothing more can be done now; else the next run continues from here."""
    ms: int = 0

    def count_kept(self, why: str, count: int = 1) -> None:
        self.kept = {**self.kept, why: self.kept.get(why, 0) + count}
