"""Durations as people write them: 90s, 90m, 12h, 30d."""

from __future__ import annotations

import re
from typing import Final

from holdfast.cli.terminal.reporting import refuse
from holdfast.core.base.errors import Refused

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(rf"(\d{{1,15}})({'|'.join(_UNITS)})")


def parse_duration_ms(option: str, text: str) -> int:
    """The duration in milliseconds; anything else is refused with the option's name and an example."""
    parts = _DURATION.fullmatch(text.strip())
    if parts is None:
        message = f"{option}: {text!r:.40} is not a duration"
        refuse(Refused("SEC-001", message, "write 90s, 90m, 12h or 30d", "InvalidParams"))
    return int(parts[1]) * _UNITS[parts[2]]
