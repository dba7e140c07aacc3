"""A standby's watch (ENG-008): counts how long the owner has been silent, and replaces an owner that hangs."""

from __future__ import annotations

import structlog

from holdfast.core.base.errors import Unavailable
from holdfast.engine.ownership.settings import OwnerSettings
from holdfast.ports import Clock, Journal, OwnerBeat

_log = structlog.get_logger()


class OwnerWatch:
    """Counts silence while it watches: what it slept through itself, with a suspended machine, does not count."""

    def __init__(self, journal: Journal, clock: Clock, settings: OwnerSettings) -> None:
        self._journal, self._clock, self._settings = journal, clock, settings
        self.silent_ms = 0
        """How long the owner has been silent; for metrics, too."""

    async def replace_hung_owner(self) -> None:
        """Return when the owner was silent for too long and is gone. Where it cannot be ended, alarm and watch on."""
        settings, last, alarmed_ms = self._settings, None, 0
        self.silent_ms, looked_ms = 0, self._clock.monotonic_ms()
        while True:
            await self._clock.sleep(settings.heartbeat_ms)
            beat, now_ms = await self._owner_beat(), self._clock.monotonic_ms()
            is_silent = beat is not None and beat == last
            self.silent_ms = self.silent_ms + min(now_ms - looked_ms, 2 * settings.heartbeat_ms) if is_silent else 0
            last, looked_ms = beat, now_ms
            if beat is None or self.silent_ms < settings.takeover_ms:
                alarmed_ms = 0
            elif self.silent_ms >= alarmed_ms:
                if await self._evict(beat):
                    return
                alarmed_ms = self.silent_ms + settings.takeover_ms

    async def _owner_beat(self) -> OwnerBeat | None:
        """None where there is no owner, or the store does not answer: then nothing is known of its owner."""
        try:
            return await self._journal.owner_beat()
        except Unavailable:
            return None

    async def _evict(self, beat: OwnerBeat) -> bool:
        _log.warning("owner_hangs", holder=beat.holder, silent_ms=self.silent_ms)
        try:
            await self._journal.evict_owner(beat)
        except Unavailable as fault:
            hint = "end that process; this node goes on following and tries again"
            _log.error("owner_not_replaced", holder=beat.holder, reason=str(fault), hint=hint)
            return False
        return True
