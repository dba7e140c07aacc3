"""What the owner knows of its tables: how far they are, who waits for them, and which commands they hold back.

History must not grow without bound while the tables stand still. Far behind, new jobs wait; farther behind, new leases
wait, too. What ends work goes on: acknowledgements, renewals, completions, evidence and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.core.base.event import Command, JournalHead
from holdfast.core.base.height_bound import AtHeight
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.base.values import EventNo
from holdfast.core.match.messages import Match
from holdfast.core.queue.messages import Enqueue
from holdfast.core.queue.requeue import Requeue
from holdfast.core.schedule.messages import FireSchedule
from holdfast.core.state import State
from holdfast.engine.projection.host import ProjectorHost

ADMITTING: Final = frozenset({Enqueue, Requeue, FireSchedule})
LEASING: Final = frozenset({Match})
ASK_AGAIN_S: Final = 0.2


class TablesProgress:
    """The checkpoint of the tables as the projector last reported it."""

    def __init__(self, projector: ProjectorHost, on_written: Callable[[JournalHead], None]) -> None:
        self.checkpoint = JournalHead()
        self._projector, self._on_written = projector, on_written
        self._written = asyncio.Event()
        projector.on_written = self._report

    async def wait(self, event: EventNo) -> None:
        """Return when the tables are complete up to this event."""
        while self.checkpoint.last < event:
            await self._wait_a_while()

    async def wait_at_end(self, event: EventNo) -> None:
        """The same, as long as there is a projector: a node that stops does not wait for a dead one."""
        while self.checkpoint.last < event and self._projector.is_running:
            await self._wait_a_while()

    async def _wait_a_while(self) -> None:
        """Until something is written, or until it is time to ask again: a new projector knows of no request."""
        self._projector.request_flush()
        self._written.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_AGAIN_S):
                await self._written.wait()

    def must_wait(self, command: Command, state: State) -> bool:
        """Whether a command must wait for the tables, because memory is too far ahead of them."""
        lag, policy = state.last_event - self.checkpoint.last, state.policy.engine
        if lag <= policy.tables_lag_events_soft:
            return False
        kind = _kind_of(command)
        return kind in ADMITTING or (kind in LEASING and lag > policy.tables_lag_events_max)

    def _report(self, checkpoint: JournalHead) -> None:
        self.checkpoint = checkpoint
        self._written.set()
        self._on_written(checkpoint)


def is_admitting(command: Command) -> bool:
    """Whether it lets a job into the queue."""
    return _kind_of(command) in ADMITTING


def _kind_of(command: Command) -> type[Command]:
    while isinstance(command, AtHeight | PrivilegedCommand):
        command = command.command
    return type(command)
