"""Whether the machine's clock can be believed when ownership is taken (CAN-006).

Time in the journal never runs backwards, so a clock that jumped ahead would expire what is not due, for good. A long
time switched off looks the same. Only a witness tells: the store's own clock, or that nothing synchronises this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.event import Command, JournalHead
from holdfast.engine.batch_clock import BatchClock
from holdfast.engine.projection.progress import is_admitting
from holdfast.ports import Journal, OwnerClock

AHEAD_MS_MAX: Final = 60_000
"""How far the machine may be ahead of the store's clock."""
DAY_MS: Final = 86_400_000
UNSYNCHRONIZED_DAYS_MAX: Final = 30
"""How far a clock that nothing synchronises may be ahead of the journal's last reading."""


_log = structlog.get_logger()


async def start_clock(
    clock: OwnerClock, journal: Journal, head: JournalHead, *, is_accepted: bool
) -> tuple[BatchClock, Refused | None]:
    """The clock of a term, and why the machine's is not believed: then time goes on from what the witnesses say."""
    if is_accepted:
        return BatchClock(clock, head.time_ms), None
    last_ms, store_ms = head.time_ms if head.number else None, await journal.wall_ms()
    refusal = why_not_believed(clock.wall_ms(), last_ms, store_ms, is_synchronized=clock.is_synchronized())
    if refusal is None:
        return BatchClock(clock, head.time_ms), None
    _log.error("clock_not_believed", reason=refusal.message, hint=refusal.hint)
    return BatchClock(clock, head.time_ms, store_ms or 0), refusal


def why_not_believed(
    wall_ms: int, last_ms: int | None, store_ms: int | None, *, is_synchronized: bool
) -> Refused | None:
    """The contradiction, if there is one. `last_ms` is the journal's last reading, None in an empty journal."""
    if store_ms is not None and (ahead_ms := wall_ms - max(store_ms, last_ms or 0)) > AHEAD_MS_MAX:
        return _refuse(f"the machine's clock is {_span(ahead_ms)} ahead of PostgreSQL's")
    if last_ms is None or is_synchronized:
        return None
    if (ahead_ms := wall_ms - last_ms) > UNSYNCHRONIZED_DAYS_MAX * DAY_MS:
        return _refuse(f"the machine's clock is {_span(ahead_ms)} ahead of the journal, and nothing synchronises it")
    return None


def check_admission(fault: Refused | None, commands: Sequence[Command]) -> None:
    """Unavailable where a job would be admitted at a time that is not believed."""
    if fault is not None and any(map(is_admitting, commands)):
        raise Unavailable(fault.rule, fault.message, fault.hint)


def _span(ms: int) -> str:
    return f"{ms // DAY_MS} days" if ms >= 2 * DAY_MS else f"{ms // 1000} s"


def _refuse(message: str) -> Refused:
    return Refused(
        "CAN-006",
        f"{message}: no job is admitted and nothing expires",
        "set the clock and restart the node; if the clock is right, restart it with --accept-clock",
        "Unavailable",
    )
