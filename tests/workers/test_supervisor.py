"""The supervisor: one loop for workers that run by the clock, and a restart for any worker that fails."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from tests.simulation.world import SimulatedClock

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.workers.provider_monitor import ProviderMonitor
from holdfast.workers.supervisor import LOOK_MS, RETRY_MS, run_periodically, supervise, worker_name

INTERVAL_MS = 70


class Log(SimulatedClock):
    """A clock that records its pauses, and cancels its caller after a number of them."""

    def __init__(self, pauses: int) -> None:
        super().__init__()
        self.steps = list[str | int]()
        self._left = pauses

    async def sleep(self, ms: int) -> None:
        self.steps.append(ms)
        self._left -= 1
        if self._left < 0:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


class FakeWorker:
    """Records its runs; each fault is raised by one of them."""

    interval_ms = INTERVAL_MS

    def __init__(self, log: Log, *faults: Exception | None, starts_at_once: bool = True) -> None:
        self._log, self._faults = log, list(faults)
        self.starts_at_once = starts_at_once

    async def run_once(self) -> None:
        self._log.steps.append("run")
        if self._faults and (fault := self._faults.pop(0)) is not None:
            raise fault


class FakeEventDrivenWorker:
    """Fails at once."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def run(self) -> None:
        self._log.steps.append("run")
        raise ValueError("a defect")


@pytest.mark.parametrize(("starts_at_once", "first"), [(True, ["run", INTERVAL_MS]), (False, [INTERVAL_MS, "run"])])
async def test_a_worker_runs_at_its_interval_and_says_whether_it_starts_at_once(
    starts_at_once: bool, first: list[str | int]
) -> None:
    log = Log(3)
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(FakeWorker(log, starts_at_once=starts_at_once), log)
    assert log.steps[:2] == first
    assert log.steps.count("run") == (4 if starts_at_once else 3)


@pytest.mark.rule("PRI-003")
async def test_an_interval_that_a_new_policy_shortens_counts_at_once() -> None:
    class Adopting(Log):
        """During the second pause the interval becomes a shorter one."""

        async def sleep(self, ms: int) -> None:
            await super().sleep(ms)
            if len(self.steps) == 2:
                worker.interval_ms = 2 * LOOK_MS + 7

    log = Adopting(3)
    worker = FakeWorker(log, starts_at_once=False)
    worker.interval_ms = 1_000 * LOOK_MS
    with pytest.raises(asyncio.CancelledError):
        await run_periodically(worker, log)
    assert log.steps == [LOOK_MS, LOOK_MS, 7, "run", LOOK_MS]


@pytest.mark.parametrize(
    ("fault", "level"), [(Unavailable("ENG-002", "no disk"), "warning"), (Corrupt("ENG-003", "damaged"), "error")]
)
async def test_what_is_unavailable_or_corrupt_is_logged_and_tried_again_after_a_pause(
    fault: Exception, level: str
) -> None:
    log = Log(2)
    with structlog.testing.capture_logs() as events, pytest.raises(asyncio.CancelledError):
        await run_periodically(FakeWorker(log, fault), log)
    assert log.steps == ["run", RETRY_MS, INTERVAL_MS, "run", INTERVAL_MS]
    (event,) = events
    assert (event["event"], event["worker"], event["log_level"]) == ("worker_run_failed", "fake_worker", level)
    assert event["reason"] == str(fault)


async def test_a_worker_that_fails_unexpectedly_is_restarted() -> None:
    log = Log(2)
    with structlog.testing.capture_logs() as events, pytest.raises(asyncio.CancelledError):
        await supervise(FakeWorker(log, None, ValueError("a defect")), log)
    assert log.steps == ["run", INTERVAL_MS, "run", RETRY_MS, "run", INTERVAL_MS]
    assert [event["event"] for event in events] == ["worker_crashed"]


async def test_an_event_driven_worker_runs_itself_and_is_restarted_as_well() -> None:
    log = Log(1)
    with pytest.raises(asyncio.CancelledError):
        await supervise(FakeEventDrivenWorker(log), log)
    assert log.steps == ["run", RETRY_MS, "run", RETRY_MS]


def test_a_worker_is_named_after_its_class() -> None:
    assert worker_name(ProviderMonitor(None)) == "provider_monitor"  # type: ignore[arg-type]
