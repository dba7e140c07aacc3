"""Inline payloads of jobs that the tables do not hold yet (ENG-007): an offer follows its admission at once."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

import msgspec

from holdfast.core.base.values import EventNo
from holdfast.core.index.touch import Marks
from holdfast.core.job.model import SpecRow
from holdfast.core.state import State
from holdfast.core.tables import discard_rows

BYTES_MAX: Final = 64 << 20
"""Beyond this the oldest are dropped; the journal has them, too."""


class PayloadCache(Marks):
    """Records the changed rows of the table `spec`, oldest admission first."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __setitem__(self, key: Any, record: msgspec.Struct | None) -> None:
        if not isinstance(record, SpecRow):  # the job was purged
            self._drop(key)
            return
        super().__setitem__(key, record)
        self._bytes += len(record.raw)
        while self._bytes > BYTES_MAX and len(self) > 1:
            self._drop(next(iter(self)))

    def find(self, event: EventNo) -> bytes | None:
        record = self.get(event)
        return record.raw if isinstance(record, SpecRow) else None

    def drop_until(self, event: EventNo) -> None:
        """The tables hold the payloads of all admissions up to this event."""
        for key in list(takewhile(lambda key: key <= event, self)):  # one by one each would look for the first anew
            self._drop(key)

    def _drop(self, key: Any) -> None:
        record = self.pop(key, None)
        self._bytes -= len(record.raw) if isinstance(record, SpecRow) else 0


def keep_payloads(state: State) -> PayloadCache:
    """Let a state of the owner or of a standby keep payloads, and no other rows."""
    payloads = PayloadCache()
    state.touched = discard_rows({"spec": payloads})
    return payloads
