"""Lengths of time as people write them: 90s, 90m, 12h, 30d."""

from __future__ import annotations

import re
from typing import Final

from holdfast.cli.speak import refuse
from holdfast.core.refusal import Refused

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WRITTEN: Final = re.compile(rf"(\d{{1,15}})({'|'.join(_UNITS)})")


def milliseconds(flag: str, written: str) -> int:
    """How long that is; what is not a length of time is refused by the flag's name, with what would be one."""
    found = _WRITTEN.fullmatch(written.strip())
    if found is None:
        says = f"{flag}: {written!r:.40} is no length of time"
        refuse(Refused("SEC-001", says, "write 90s, 90m, 12h or 30d", "InvalidParams"))
    return int(found[1]) * _UNITS[found[2]]
