"""The requester's own log: every request, and every receipt that the node gave, written when it happened.

One JSON object per line, so that a person can read along.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec


class RequestStatus(StrEnum):
    """The state of a request for its requester."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"


class RequestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `event` is the event in the receipt; `repeat` says that an earlier request had created the job."""

    status: RequestStatus
    number: int
    """The number of the demo's job."""
    task_id: str = ""
    event: int = 0
    repeat: bool = False


class ReceiptLog:
    """Appends records to a file, each at once, and keeps them in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records: list[RequestRecord] = []

    def append(self, record: RequestRecord) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        self.records.append(record)
