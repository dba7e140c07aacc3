"""Runs the owner's workers: one loop for all that run by the clock, and a restart for any that fails unexpectedly."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import structlog

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.ports import Clock

RETRY_MS: Final = 1_000
"""The pause after a run that failed, in addition to the interval, and before a restart."""
LOOK_MS: Final = 5_000
"""How soon a worker that pauses longer notices that its interval has become shorter: an adopted policy counts."""
_log = structlog.get_logger()


class Worker(Protocol):
    """Does what is due, at an interval. All it needs is in the state, so it can be restarted at any time."""

    @property
    def starts_at_once(self) -> bool:
        """Whether the first run is at the start; otherwise it is after the first interval."""
        ...

    @property
    def interval_ms(self) -> int:
        """The pause before the next run; read again while it lasts (PRI-003)."""
        ...

    async def run_once(self) -> None:
        """Do everything that is due now."""
        ...


@runtime_checkable
class EventDrivenWorker(Protocol):
    """Runs until it is cancelled, and is woken by changes of the state instead of the clock."""

    async def run(self) -> None: ...


async def supervise(worker: Worker | EventDrivenWorker, clock: Clock) -> None:
    """Run a worker until cancelled, and restart it after an error: without a reaper, no lease would ever expire."""
    while True:
        try:
            if isinstance(worker, EventDrivenWorker):
                await worker.run()
            else:
                await run_periodically(worker, clock)
        except Exception:
            _log.exception("worker_crashed", worker=worker_name(worker), retry_ms=RETRY_MS)
        await clock.sleep(RETRY_MS)


async def run_periodically(worker: Worker, clock: Clock) -> None:
    """Run a worker at its interval until cancelled. A store or disk that is unavailable is tried again."""
    if not worker.starts_at_once:
        await _pause(worker, clock)
    while True:
        try:
            await worker.run_once()
        except (Unavailable, Corrupt) as fault:
            log = _log.error if isinstance(fault, Corrupt) else _log.warning
            log("worker_run_failed", worker=worker_name(worker), reason=str(fault))
            await clock.sleep(RETRY_MS)
        await _pause(worker, clock)


async def _pause(worker: Worker, clock: Clock) -> None:
    """Others get a turn even where the interval is 0."""
    slept_ms, left_ms = 0, worker.interval_ms
    while True:
        step_ms = min(left_ms, LOOK_MS)
        await clock.sleep(step_ms)
        slept_ms += step_ms
        left_ms = worker.interval_ms - slept_ms
        if left_ms <= 0:
            return


def worker_name(worker: Worker | EventDrivenWorker) -> str:
    """The name in logs and of the task: `provider_monitor` for ProviderMonitor."""
    name = type(worker).__name__
    return name[0].lower() + "".join(f"_{char.lower()}" if char.isupper() else char for char in name[1:])
