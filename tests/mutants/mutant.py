"""The shape of a seeded fault: one change of the source, and the tests that must fail with it."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of the source that some test must detect."""

    fault: str
    """What the changed code does wrong; it becomes the id of the test."""
    file: str
    """Relative to `src/holdfast`."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    seen_by: str
    """Arguments for pytest: test files, and at the end perhaps `-k` with a part of a test's name."""
