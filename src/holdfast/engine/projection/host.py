"""The projector as its node sees it: started, stopped, asked to hurry, and heard of when it has written.

A node runs it in a process of its own (`app.projector_process`); simulations and tests run it as a task of their loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import structlog

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.policy import Policy
from holdfast.engine.projection.projector import Projector
from holdfast.ports import Clock, Files, Journal, TableWriter

CANCEL_AGAIN_S: Final = 0.5
_log = structlog.get_logger()


class ProjectorHost(Protocol):
    """Where a projector runs."""

    on_written: Callable[[JournalHead], None]
    """Called with the checkpoint when the projector begins and whenever it has written."""

    @property
    def is_running(self) -> bool: ...
    def start(self) -> None: ...

    def request_flush(self) -> None:
        """Somebody waits for the tables."""
        ...

    async def stop(self) -> None:
        """End it at once and wait until it has released the tables' lock; the next one goes on where it was."""
        ...


class ProjectorTask:
    """A projector in a task of this event loop."""

    def __init__(self, journal: Journal, tables: TableWriter, files: Files, clock: Clock, policy: Policy) -> None:
        self._journal, self._tables, self._files, self._clock, self._policy = journal, tables, files, clock, policy
        self.on_written: Callable[[JournalHead], None] = lambda _: None
        self._projector: Projector | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        if self.is_running:
            return
        self._projector = Projector(self._journal, self._tables, self._files, self._policy, self._clock, self._report)
        self._task = asyncio.create_task(self._run(self._projector), name="projector")

    def request_flush(self) -> None:
        if self._projector is not None:
            self._projector.request_flush()

    async def stop(self) -> None:
        if self._task is None:
            return
        while not self._task.done():  # a driver may answer the first cancellation with an error of its own
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CANCEL_AGAIN_S)
        self._task = None
        with suppress(Unavailable):
            await self._tables.release()

    def _report(self, checkpoint: JournalHead) -> None:
        self.on_written(checkpoint)

    async def _run(self, projector: Projector) -> None:
        try:
            await projector.run()
        except Exception as fault:
            _log.error("projector_failed", reason=str(fault), hint="the node goes on; its tables do not")
