"""What operators are told about the archive: a pruning, and an audit."""

from __future__ import annotations

import msgspec

from holdfast.core.base.values import Height


class PruneReport(msgspec.Struct, frozen=True):
    """The heights whose bytes were deleted, and why the others stay."""

    pruned: list[Height]
    kept: dict[int, str]


class ReadBackFault(msgspec.Struct, frozen=True):
    """An archived blob that the archive could not show, or not as it was."""

    height: Height
    number: int
    locator: str
    reason: str
    is_repaired: bool = False
    """It is in the archive again, or will be: this node has its bytes."""


class ReadBackReport(msgspec.Struct):
    """How many blobs were read back of those that were to be, and what was wrong."""

    total: int = 0
    checked: int = 0
    faults: list[ReadBackFault] = []
    upgraded: int = 0
    """Records that were only signed before, and that count as verified now."""
    is_done: bool = False
