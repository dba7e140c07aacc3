"""What a seeded fault is: a change of one place in the source that must not go unnoticed."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change that must not go unnoticed."""

    says: str
    file: str
    old: str
    new: str
    seen_by: str
