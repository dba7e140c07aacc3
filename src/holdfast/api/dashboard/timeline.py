"""The last quarter of an hour of a node: the curves, the faults on them, and which alerts were raised and cleared.

It is in memory and bounded: alerts derive from the state, and what led to them is in the journal (OBS-001).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.api.dashboard.alerts import Alert, AlertLevel
from holdfast.engine.lookups.overview import Overview

SAMPLES_KEPT: Final = 180
FAULTS_KEPT: Final = 32
ALERTS_KEPT: Final = 100
LOST: Final = "lost"
"""Leases that ended without a result, by reason."""
HARMLESS: Final = frozenset({"JOB_CANCELLED", "QUORUM_REACHED", "DECLINED"})
"""Reasons that are no faults."""
ENDED: Final = ("COMPLETED", "FAILED", "EXPIRED", "CANCELLED")
Counts = Mapping[tuple[str, str], int]


class QueueSample(msgspec.Struct, frozen=True, array_like=True):
    """One point of the curves; the last two only grow while the process lives, so that rates can be drawn."""

    time_ms: int
    waiting: int
    leases: int
    admitted: int = 0
    ended: int = 0


class FaultMark(msgspec.Struct, frozen=True):
    """Something to mark on the curves."""

    time_ms: int
    text: str
    rule: str


class PastAlert(msgspec.Struct, frozen=True):
    """An alert, since when it is one, and when it ceased to be."""

    alert: Alert
    raised_ms: int
    cleared_ms: int | None = None


class Timeline:
    """What one process has seen since it started."""

    def __init__(self) -> None:
        self.samples: deque[QueueSample] = deque(maxlen=SAMPLES_KEPT)
        self.faults: deque[FaultMark] = deque(maxlen=FAULTS_KEPT)
        self._open: dict[str, PastAlert] = {}
        self._cleared: deque[PastAlert] = deque(maxlen=ALERTS_KEPT)
        self._lost: dict[str, int] | None = None
        self._has_looked = False
        """What was stuck before this process looked began at a time that it does not know."""

    def history(self) -> list[PastAlert]:
        """The open ones, then those that were cleared, the newest first."""
        by_age = sorted(self._open.values(), key=lambda each: -each.raised_ms)
        return [*by_age, *reversed(self._cleared)]

    def sample(self, seen: Overview, counts: Counts) -> None:
        """Take one point, and mark what was lost since the last one."""
        waiting = sum(seen.queue.waiting.values()) + seen.queue.retrying
        admitted = sum(count for (name, _), count in counts.items() if name == "admitted")
        ended = sum(count for (name, _), count in counts.items() if name in ENDED)
        self.samples.append(QueueSample(seen.now_ms, waiting, seen.queue.leases, admitted, ended))
        lost = {reason: count for (name, reason), count in counts.items() if name == LOST and reason not in HARMLESS}
        if self._lost is not None:
            self._mark_lost(seen.now_ms, lost, self._lost)
        self._lost = lost

    def _mark_lost(self, now_ms: int, lost: dict[str, int], before: dict[str, int]) -> None:
        more = {reason: count - before.get(reason, 0) for reason, count in lost.items()}
        reasons = sorted(reason for reason, count in more.items() if count > 0)
        if total := sum(more[reason] for reason in reasons):
            text = f"{total} {'lease' if total == 1 else 'leases'} lost: {', '.join(reasons)}"
            self.faults.append(FaultMark(now_ms, text, "RTY-001"))

    def observe(self, now_ms: int, alerts: list[Alert]) -> None:
        """Compare with what was known: raise what is new, clear what is gone, keep the latest words of the rest."""
        found = {alert.key: alert for alert in alerts}
        for key in [key for key in self._open if key not in found]:
            self._cleared.append(msgspec.structs.replace(self._open.pop(key), cleared_ms=now_ms))
        for key, alert in found.items():
            if key not in self._open and alert.level is AlertLevel.STUCK and self._has_looked:
                self.faults.append(FaultMark(now_ms, alert.text, alert.rule))
            raised_ms = self._open[key].raised_ms if key in self._open else now_ms
            self._open[key] = PastAlert(alert, raised_ms)
        self._has_looked = True
