"""Sessions that earlier processes left behind: delivered from the oldest on, each on a stream of its own (EVD-004)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.agent.delivery import Delivery
from holdfast.core.refusal import Refused, Unavailable
from holdfast.ports import Clock
from holdfast.spool import Spool, SpoolPolicy, channel
from holdfast.spool.disk import RealDisk

Deliver = Callable[[str, Spool], Delivery]
_log = structlog.get_logger()


class Backlog:
    """Those of one channel, oldest first; each stays here until it is closed."""

    def __init__(self, root: Path, channel_id: str, deliver: Deliver, clock: Clock, policy: SpoolPolicy | None) -> None:
        self._root, self._channel, self._policy = root, channel_id, policy
        self._deliver, self._clock = deliver, clock
        self.waiting: list[Delivery] = []

    def open(self, session: str) -> Spool | Refused:
        return Spool.open(self._channel, session, root=self._root, policy=self._policy)

    async def take_up(self, session: str) -> Delivery | None:
        """One more; None where it cannot be opened, which is said and does not keep the others."""
        try:
            spool = await asyncio.to_thread(self.open, session)
        except Unavailable as fault:
            _log.error("an old session cannot be delivered", session=session, because=str(fault))
            return None
        if isinstance(spool, Refused):
            say = _log.info if spool.name == "SessionLocked" else _log.error  # then another process delivers it
            say("an old session cannot be delivered", session=session, because=str(spool))
            return None
        old = self._deliver(session, spool)
        self.waiting.append(old)
        return old

    async def run(self, live_session: Callable[[], str]) -> None:
        """Until none is left. One that is stuck was told and does not hold up the others; it is tried again at the
        next start."""
        while self.waiting:
            old = self.waiting[0]
            await old.run(self._clock, until_delivered=True)
            if not old.stuck:
                _log.info("an old session is delivered", session=old.session, records=old.spool.spooled_sequence)
            self.waiting.remove(old)
            await self._close(old, live_session())

    async def _close(self, old: Delivery, live_session: str) -> None:
        """A session that is delivered and has an end may go; without one it is kept (SP-RET-001)."""
        try:
            await old.spool.aclose()
            folder = self._root / self._channel
            await asyncio.to_thread(channel.reclaim, RealDisk(), folder, self._clock.wall_ms(), but=live_session)
        except (Unavailable, OSError) as fault:
            _log.warning("an old session could not be closed", session=old.session, because=str(fault))

    async def close(self) -> None:
        """Let go of what is left, for the next start."""
        for each in self.waiting:
            try:
                await each.spool.aclose()
            except Unavailable as fault:
                _log.warning("an old session could not be closed", session=each.session, because=str(fault))
