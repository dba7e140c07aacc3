"""A duty for ever: what it did not foresee is told and it begins again, so that no node goes on without it."""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from holdfast.ports import Clock

AGAIN_MS: Final = 1_000
_log = structlog.get_logger()


class Duty(Protocol):
    """Somebody who looks at the state and does what follows from it; begun again, it finds all where it looks."""

    async def run(self) -> None: ...


async def tireless(duty: Duty, clock: Clock) -> None:
    """Until cancelled. A node whose proposer or reaper died unseen would answer on and never end a lease."""
    while True:
        try:
            await duty.run()
        except Exception:
            _log.exception("a duty failed and begins again", duty=type(duty).__name__.lower())
        await clock.sleep(AGAIN_MS)
