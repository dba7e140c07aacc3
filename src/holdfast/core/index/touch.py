"""Which records changed: what a domain touches is a row that the projection must write (ENG-004)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

Marks = dict[Any, msgspec.Struct | None]
"""Changed records of one table by key; None where there is no such row any more."""
Touched = dict[str, Marks]
"""Changed records by table and key, since the projector last wrote them."""


class _DiscardedMarks(Marks):
    """Takes marks and keeps none: only the projector writes rows."""

    def __setitem__(self, key: Any, record: msgspec.Struct | None) -> None:
        pass


DISCARDED: Final[Marks] = _DiscardedMarks()
