"""What running work says, as evidence: percent and messages, bounded before they are numbered (EVD-005, SEC-002)."""

from __future__ import annotations

from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from holdfast.agent.executors.contract import Report
from holdfast.agent.leases.lease_run import LeaseRun
from holdfast.agent.leases.records import PROGRESS, STARTED
from holdfast.agent.transport.evidence_emitter import EvidenceEmitter

BYTES_MAX: Final = 64 << 10
"""Of one lease; then a last record says how many messages were dropped."""
RECORD_BYTES: Final = 64
"""What a message costs besides its text: many empty ones are bounded, too."""
TEXT_MAX: Final = 2_000


class _Spent:
    def __init__(self) -> None:
        self.bytes, self.number, self.dropped = 0, 0, 0
        self.percent: int | None = None


class WorkReports:
    """Emits the reports of all leases; what the spool refuses now is dropped and counted."""

    def __init__(self, emitter: EvidenceEmitter) -> None:
        self._emitter = emitter
        self._spent: WeakKeyDictionary[LeaseRun, _Spent] = WeakKeyDictionary()

    def of(self, lease: LeaseRun) -> Report:
        """For the executor of this lease."""
        self._spent[lease] = _Spent()
        return partial(self._report, lease)

    def _report(self, lease: LeaseRun, percent: int | None, text: str) -> None:
        spent = self._spent[lease]
        if not lease.is_executing:
            return
        if percent is not None and not text and percent == spent.percent:
            return
        spent.percent = percent if percent is not None else spent.percent
        text = text.encode("utf-8", "replace")[:TEXT_MAX].decode("utf-8", "ignore")
        cost = len(text.encode()) + RECORD_BYTES
        if spent.dropped or spent.bytes + cost > BYTES_MAX or not self._emit(lease, spent, percent, text):
            spent.dropped += 1
            return
        spent.bytes += cost

    def _emit(self, lease: LeaseRun, spent: _Spent, percent: int | None, text: str) -> bool:
        said: dict[str, Any] = {"percent": percent} if percent is not None else {}
        payload = {"lease_id": lease.id.hex(), "number": spent.number, "text": text, **said}
        if not self.report_start(lease) or self._emitter.try_emit(PROGRESS, payload) is None:
            return False
        spent.number += 1
        return True

    def finish(self, lease: LeaseRun) -> None:
        """The work is done: one record says how many messages there is no record of."""
        spent = self._spent.pop(lease, None)
        if spent is not None and spent.dropped:
            self._emit(lease, spent, None, f"dropped {spent.dropped}")

    def report_start(self, lease: LeaseRun) -> bool:
        """Once, before any progress; False where the spool refuses it now."""
        payload = {"lease_id": lease.id.hex(), "attempt": lease.offer.attempt}
        lease.is_started = lease.is_started or self._emitter.try_emit(STARTED, payload) is not None
        return lease.is_started

    def report_renewal(self, lease: LeaseRun, renewal: int, now_ms: int) -> None:
        """While it works. It never waits: a full spool must not delay heartbeats, nor a record follow the fence."""
        if lease.is_executing and self.report_start(lease):
            payload = {"lease_id": lease.id.hex(), "took_ms": lease.took_ms(now_ms), "renewal": renewal}
            self._emitter.try_emit(PROGRESS, payload)
