"""The journal's clock (CAN-004): while leases live its reading is noted at least once a second."""

from __future__ import annotations

import msgspec

from holdfast.core.event import Decided, Event


class NoteTime(msgspec.Struct, frozen=True, gc=False):
    """Write down what time it is: the batch's own reading."""


class TimeNoted(Event, frozen=True, tag=3):
    """The owner was there at this time; what its outage costs nobody is counted from here (LEA-008)."""


def note(_state: object, _command: NoteTime, _now_ms: int) -> Decided:
    return Decided((TimeNoted(),))
