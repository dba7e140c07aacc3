"""The owner's heartbeat (ENG-008): shows others that its loop turns, and notices when it stood still itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.engine.ownership.settings import OwnerSettings
from holdfast.ports import Clock, Journal


class OwnerHeartbeat:
    """Beats while the owner's loop turns and no append hangs. Without settings nothing beats and no pause counts."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        settings: OwnerSettings | None,
        on_interrupted: Callable[[Unavailable], None],
    ) -> None:
        self._journal, self._clock, self._settings, self._on_interrupted = journal, clock, settings, on_interrupted
        self._turned_ms = clock.monotonic_ms()
        self._append_began_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._settings is not None and self._task is None:
            self.reset()
            self._task = asyncio.create_task(self._beat_forever(self._settings), name="heartbeat")

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def reset(self) -> None:
        """The loop turns now; whatever was before does not count."""
        self._turned_ms = self._clock.monotonic_ms()

    def find_pause(self) -> Unavailable | None:
        """That the loop stood still until now for too long, None where it did not.

        LEA-008: a stopped process or a suspended machine is an outage like a restart. Asked before every decision and
        answer: what woke up with the loop may run before the heartbeat does.
        """
        before_ms, now_ms = self._turned_ms, self._clock.monotonic_ms()
        if self._settings is not None and now_ms - before_ms > self._settings.pause_ms:
            message = f"the node stood still for {now_ms - before_ms} ms"
            return Unavailable("LEA-008", message, "it acquires ownership again: submit again with the same id")
        self._turned_ms = now_ms
        return None

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Around an append: one that hangs silences the heartbeat."""
        self._append_began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self._append_began_ms = None

    async def beat(self, hang_ms: int) -> None:
        """One heartbeat, unless the append under way has lasted so long already."""
        if self._append_began_ms is None or self._clock.monotonic_ms() - self._append_began_ms < hang_ms:
            await self._journal.heartbeat()

    async def _beat_forever(self, settings: OwnerSettings) -> None:
        while True:
            try:
                if (pause := self.find_pause()) is not None:
                    self._on_interrupted(pause)
                else:
                    await self.beat(settings.heartbeat_ms)
            except (Unavailable, Corrupt) as fault:
                self._on_interrupted(Unavailable("ENG-001", f"the heartbeat failed: {fault}"))
            await self._clock.sleep(settings.heartbeat_ms)
