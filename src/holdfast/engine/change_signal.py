"""Wakes workers when something was decided. It does not say what changed: a worker reads the state."""

from __future__ import annotations

import asyncio


class ChangeSignal:
    """Every subscriber has its own flag; notifying all of them costs a few attribute writes."""

    def __init__(self) -> None:
        self._flags: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """A flag that is set at first: a new subscriber looks at the state once."""
        flag = asyncio.Event()
        flag.set()
        self._flags.append(flag)
        return flag

    @property
    def is_watched(self) -> bool:
        return bool(self._flags)

    def notify(self) -> None:
        for flag in self._flags:
            flag.set()
