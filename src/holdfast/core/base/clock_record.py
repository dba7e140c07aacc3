"""The journal's clock (CAN-004): while leases live its reading is recorded at least once a second."""

from __future__ import annotations

from holdfast.core.base.event import Command, Decided, Event


class RecordTime(Command, frozen=True):
    """Record the clock reading of the batch."""


class TimeRecorded(Event, frozen=True, tag=3):
    """The owner was alive at this time; an outage is measured from here (LEA-008)."""


def record_time(_state: object, _command: RecordTime, _now_ms: int) -> Decided:
    return Decided((TimeRecorded(),))
