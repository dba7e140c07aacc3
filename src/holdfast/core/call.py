"""Calls that are bound to a height (JOB-004): decided in the block they were made for, or not at all."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.refusal import Refused
from holdfast.core.values import Height


class AtHeight(msgspec.Struct, frozen=True, gc=False):
    """A command that counts only while this block is open."""

    height: Height
    command: Any


def why_not_height(open_height: Height, named: Height | None) -> Refused | None:
    """JOB-004: a call runs at the open height; one that was made for another height is refused."""
    if named is None or named == open_height:
        return None
    says = f"the open block is {open_height}, the call is for {named}"
    return Refused("JOB-004", says, "run the call again at the open height", "HeightMismatch")
