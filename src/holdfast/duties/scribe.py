"""The scribe: keeps the as-run logs of v0.1 channels up to date, where the operator wants them (EVD-009).

It writes what is durable, from a cursor of its own that is stored after the entries: a crash makes it look again, and
the log itself knows what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from holdfast.core.evidence.marks import Mark
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.engine.asrun import AsRun, Kept
from holdfast.engine.loop import Engine
from holdfast.ports import Clock, Files

LOOK_MS: Final = 5_000
LINES_A_WRITE: Final = 1_000
Lines = Callable[[Engine, Mark, int, int], Kept]
"""The records of a session from one sequence to another."""
_log = structlog.get_logger()


class Scribe:
    """One folder a channel; a channel that is idle costs a comparison."""

    def __init__(self, engine: Engine, clock: Clock, folder: Callable[[str], Files], lines: Lines) -> None:
        self._engine, self._clock, self._folder, self._lines = engine, clock, folder, lines
        self._logs: dict[str, AsRun] = {}
        self._written: dict[str, int] = {}
        self._said: dict[str, str] = {}
        """Why a session's log waits, as it was last said: once is enough while it stays the same."""

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Unavailable as fault:
                _log.warning("the as-run logs wait", because=str(fault))
            await self._clock.sleep(LOOK_MS)

    async def look(self) -> None:
        """Everything that is durable by now."""
        marks = await self._engine.ask(lambda state: [each for each in state.marks.values() if not each.provider_id])
        for mark in marks:
            upto = mark.acked
            if self._written.get(mark.id, 0) < upto:
                try:
                    await self._write(mark, upto)
                except Corrupt as fault:  # one log, or one session, that a person has to look at keeps no other one
                    self._say(mark, str(fault))

    def _say(self, mark: Mark, why: str) -> None:
        if self._said.get(mark.id) != why:
            _log.error("an as-run log waits", channel=mark.channel, session=mark.session, because=why)
        self._said[mark.id] = why

    async def _write(self, mark: Mark, upto: int) -> None:
        log = self._logs.get(mark.channel)
        if log is None:
            log = self._logs[mark.channel] = AsRun(self._folder(mark.channel), mark.channel)
        last = await log.written(mark.session)
        while (last := max(last, mark.pruned)) < upto:
            until = min(upto, last + LINES_A_WRITE)
            try:
                lines = [line async for _, line in self._lines(self._engine, mark, last + 1, until)]
            except Corrupt:
                if mark.pruned <= last:
                    raise
                continue  # let go of while it was read: the rest is written
            await log.write(lines)
            await log.note(mark.session, until)
            last = until
        self._written[mark.id] = upto
        self._said.pop(mark.id, None)
