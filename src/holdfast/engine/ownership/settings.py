"""The settings of ownership: how often an owner shows that it lives, and when a standby replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec


class OwnerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one node; nodes that share a journal should agree."""

    heartbeat_ms: int = 1_000
    """How often the owner shows that its loop turns."""
    takeover_ms: int = 10_000
    """After so long without a heartbeat a standby replaces the owner."""
    pause_ms: int = 5_000
    """An owner that stood still for longer acquires ownership again before it decides or answers anything."""
    scrub_hours: int = 24
    """How often the whole journal is verified, beside once after each start; 0: never."""


_Ms = Annotated[int, msgspec.Meta(ge=10, le=3_600_000)]
LEAVES: Final[Mapping[str, Any]] = {
    "heartbeat_ms": _Ms,
    "takeover_ms": _Ms,
    "pause_ms": _Ms,
    "scrub_hours": Annotated[int, msgspec.Meta(ge=0, le=8_760)],
}
"""The type and bounds of each setting, by name."""


def why_not(settings: OwnerSettings) -> str | None:
    """What contradicts itself: an owner must be able to notice its own pause before it is replaced."""
    if settings.pause_ms < 2 * settings.heartbeat_ms:
        return f"pause_ms: {settings.pause_ms} is less than twice heartbeat_ms, {settings.heartbeat_ms}"
    if settings.takeover_ms < settings.pause_ms:
        return f"takeover_ms: {settings.takeover_ms} is less than pause_ms, {settings.pause_ms}"
    return None
