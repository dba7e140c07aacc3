"""Commands and events of matching."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import AccountId


def _no_stopwatch() -> int:
    return 0


class Match(Command, frozen=True):
    """Assign waiting jobs to providers. Height and beacon of the head are read from the state (MAT-001)."""

    stopwatch: Callable[[], int] = _no_stopwatch
    """Measures how long a tick takes; no decision depends on it."""


class RequestersCounted(Event, frozen=True, tag=100):
    """The jobs that a tick assigned for each requester count in its window until `until_ms`."""

    at_ms: int
    until_ms: int
    counts: dict[AccountId, int]
