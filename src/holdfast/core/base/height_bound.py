"""Commands that are bound to a height (JOB-004): decided in the block that they name, or not at all."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import Height

TX_HASH_BYTES: Final = 32


class AtHeight(Command, frozen=True):
    """A command that counts only while this block is open."""

    height: Height
    command: Any


def why_not_height(open_height: Height, requested_height: Height | None) -> Refused | None:
    """JOB-004: a call runs at the open height; one that names another height is refused."""
    if requested_height is None or requested_height == open_height:
        return None
    message = f"the open block is {open_height}, the call is for {requested_height}"
    return Refused("JOB-004", message, "run the call again at the open height", "HeightMismatch")
