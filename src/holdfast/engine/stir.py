"""Waking those who wait for something to have been decided: a duty looks at the state, it is not told what changed."""

from __future__ import annotations

import asyncio


class Stir:
    """Every subscriber has a flag of its own; raising all of them costs a few attribute writes."""

    def __init__(self) -> None:
        self._flags: list[asyncio.Event] = []

    def subscribe(self) -> asyncio.Event:
        """A flag that is up at first: whoever begins looks once."""
        flag = asyncio.Event()
        flag.set()
        self._flags.append(flag)
        return flag

    def __call__(self) -> None:
        for flag in self._flags:
            flag.set()
