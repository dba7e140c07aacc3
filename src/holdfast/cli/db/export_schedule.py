"""`holdfast db export --every`: one export after the other, old ones deleted, until a stop signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from holdfast.adapters.export_folders import ExportFolders
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.history.export_import import ExportManifest
from holdfast.ports import Clock

ExportInto = Callable[[Path], Awaitable[ExportManifest | Refused]]
"""Brings the export in a folder up to the journal's end."""
LOOK_MS_MAX: Final = 60_000
"""The wall clock is looked at again after so long: it may be set, and the machine may sleep."""
RETRY_MS_FIRST, RETRY_MS_MAX = 10_000, 600_000
_log = structlog.get_logger()


class ExportMetrics:
    """For Prometheus, on a loopback port where one is named."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.finished = Gauge(
            "holdfast_export_finished_seconds", "When the newest export was begun; 0: there is none.", registry=registry
        )
        self.kept = Gauge("holdfast_exports_kept", "Exports that are there.", registry=registry)
        self.batches = Gauge("holdfast_export_batches", "Batches in the newest export.", registry=registry)
        self.took = Gauge("holdfast_export_duration_seconds", "How long the last export took.", registry=registry)
        self.failures = Counter(
            "holdfast_export_failures", "Exports that failed and are tried again.", registry=registry
        )

    def serve(self, port: int) -> Any:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        return server


class ExportSchedule:
    """Exports when one is due, also right after a start: what counts is the time of the newest export."""

    def __init__(
        self, folders: ExportFolders, export_into: ExportInto, clock: Clock, *, every_ms: int, keep: int
    ) -> None:
        self._folders, self._export_into, self._clock = folders, export_into, clock
        self._every_ms, self._keep = every_ms, keep
        self.metrics = ExportMetrics()

    async def run(self) -> None:
        """For ever. Cancelled, it leaves an unfinished export, which the next run continues."""
        retry_ms = RETRY_MS_FIRST
        while True:
            await self._wait_until_due()
            try:
                await self.export_once()
                retry_ms = RETRY_MS_FIRST
            except Unavailable as fault:
                self.metrics.failures.inc()
                _log.error("export_failed", reason=str(fault), retry_in_ms=retry_ms)
                await self._clock.sleep(retry_ms)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    async def export_once(self) -> None:
        """One export, then the deletion of old ones. Unavailable where it cannot be made now."""
        began_ms, started_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        manifest = await self._export_into(await self._folders.begin())
        if isinstance(manifest, Refused):
            raise Unavailable(manifest.rule, manifest.message, manifest.hint)
        name, took_ms = await self._folders.finish(began_ms), self._clock.monotonic_ms() - started_ms
        _log.info("export_finished", folder=name, batches=manifest.batches, events=manifest.events, took_ms=took_ms)
        self.metrics.took.set(took_ms / 1000)
        for old in await self._folders.delete_old(self._keep):
            _log.info("export_deleted", folder=old, keep=self._keep)
        await self._due_ms()

    async def _wait_until_due(self) -> None:
        while (left_ms := await self._due_ms() - self._clock.wall_ms()) > 0:
            await self._clock.sleep(min(left_ms, LOOK_MS_MAX))

    async def _due_ms(self) -> int:
        """When the next export is due; 0: now. An export from the future says nothing: the clock was set back."""
        finished = await self._folders.finished()
        self.metrics.kept.set(len(finished))
        if not finished:
            return 0
        newest = finished[-1]
        self.metrics.finished.set(newest.at_ms // 1000)
        self.metrics.batches.set(newest.batches)
        return 0 if newest.at_ms > self._clock.wall_ms() else newest.at_ms + self._every_ms


async def run_until_signal(schedule: ExportSchedule, metrics_port: int | None) -> None:
    """Until SIGTERM or SIGINT; raises what ended the schedule before."""
    running, loop = asyncio.create_task(schedule.run()), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    server = schedule.metrics.serve(metrics_port) if metrics_port is not None else None
    try:
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
    finally:
        if server is not None:
            server.shutdown()
    _log.info("export_schedule_stopped", hint="an unfinished export is continued by the next start")
