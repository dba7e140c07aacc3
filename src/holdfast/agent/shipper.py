"""The agent's evidence: one session per process, spooled before it is told, delivered until it is acked (EVD-005).

The channel is the provider's id. Sessions that earlier processes left are replayed beside the live one, oldest first
(EVD-004).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from holdfast.agent.backlog import Backlog, Deliver
from holdfast.agent.delivery import Delivery
from holdfast.agent.held import Told
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.ports import Clock
from holdfast.spool import Spool, SpoolPolicy, Ticket, channel
from holdfast.spool.disk import RealDisk
from holdfast.spool.names import Place
from holdfast.spool.record import CHANNEL_TERMINATED

AGAIN_MS: Final = 200
"""A spool that takes nothing now is asked again after this."""
OVER: Final = frozenset({"SessionEnded", "SessionDamaged", "SessionFinished"})
"""Refusals after which only another session takes records."""
_log = structlog.get_logger()


class Shipper:
    """Emits into the live session and delivers all of them."""

    def __init__(
        self, root: Path, channel_id: str, deliver: Deliver, clock: Clock, policy: SpoolPolicy | None = None
    ) -> None:
        self._root, self._channel = root, channel_id
        self._deliver, self._clock = deliver, clock
        self._live: Delivery | None = None
        self.backlog = Backlog(root, channel_id, deliver, clock, policy)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._opening = asyncio.Lock()
        self._known: dict[tuple[str, str], Told] = {}
        self._is_delivering = False
        self._no = ""
        """Why no session could be begun when it was tried last."""

    @property
    def is_ready(self) -> bool:
        """There is a session that takes records: without one no work is taken."""
        return self._live is not None

    def opened(self) -> list[tuple[str, Spool]]:
        """What is being delivered, the live session first."""
        found = ([] if self._live is None else [self._live]) + self.backlog.waiting
        return [(each.session, each.spool) for each in found]

    @property
    def live_session(self) -> str:
        return self._live.session if self._live is not None else ""

    # -------------------------------------------------------------------------------------------- opening

    async def open(self) -> None:
        """Take up what old sessions still have to deliver, and begin a new one. Unavailable where the disk fails."""
        for session in await asyncio.to_thread(self._unfinished):
            old = await self.backlog.take_up(session)
            if old is not None:
                await asyncio.to_thread(self._learn, session, old.spool)
        await self._begin()

    def _unfinished(self) -> list[str]:
        """Sessions with something to deliver, oldest first; those that have nothing and no end are kept and named."""
        disk, folder = RealDisk(), self._root / self._channel
        if not folder.exists():
            return []
        channel.reclaim(disk, folder, self._clock.wall_ms(), but="")
        found = [channel.standing(disk, Place(folder, self._channel, name)) for name in channel.sessions(disk, folder)]
        if done := [each for each in found if each.acked >= each.last]:
            hint = f"holdfast spool seal {folder}/SESSION.spool.jsonl --yes"
            _log.info("delivered sessions without an end are kept (SP-RET-001)", sessions=len(done), hint=hint)
        return [each.place.session for each in found if each.acked < each.last]

    def _learn(self, session: str, spool: Spool) -> None:
        """What was told already, by record type and lease: it is not told again."""
        try:
            for sequence, line in enumerate(spool.replay(spool.first_available - 1), spool.first_available):
                record = msgspec.json.decode(line, type=_Record)
                if record.payload.lease_id:
                    self._known[record.payload_type, record.payload.lease_id] = Told(session, sequence)
        except (Corrupt, Unavailable, msgspec.DecodeError) as fault:  # delivery says it aloud
            _log.warning("an old session is not whole", session=session, because=str(fault))

    def told(self, payload_type: str, lease_id: bytes) -> Told | None:
        """Where an earlier process has spooled this, if that is still known."""
        return self._known.get((payload_type, lease_id.hex()))

    async def _begin(self) -> None:
        session = await asyncio.to_thread(self._next_session)
        spool = await asyncio.to_thread(self.backlog.open, session)
        if isinstance(spool, Refused):
            return self._say_no(str(spool))
        self._no = ""
        self._live = self._deliver(session, spool)
        if self._is_delivering:
            self._deliver_live()
        return None

    def _say_no(self, why: str) -> None:
        """Once, while it stays the same: it is tried again a few times a second."""
        if why != self._no:
            _log.error("no evidence can be kept, no work is taken", because=why)
        self._no = why

    def _next_session(self) -> str:
        """Sessions sort by when they began, also where the clock went back."""
        folder = self._root / self._channel
        names = channel.sessions(RealDisk(), folder) if folder.exists() else []
        last = max((int(name) for name in names if name.isdigit()), default=0)
        return f"{max(self._clock.wall_ms(), last + 1):015d}"

    # -------------------------------------------------------------------------------------------- emitting

    async def emit(self, payload_type: str, payload: dict[str, Any]) -> None:
        """Hand one record over. It waits only where the spool takes nothing: no evidence is dropped."""
        await self._emit(payload_type, payload)

    async def spool(self, payload_type: str, payload: dict[str, Any]) -> Told:
        """The same, and return when it is spooled (SP-002)."""
        while True:
            live, ticket = await self._emit(payload_type, payload)
            try:
                return Told(live.session, await ticket)
            except Unavailable as fault:
                _log.error("evidence could not be spooled, once more", session=live.session, because=str(fault))

    async def _emit(self, payload_type: str, payload: dict[str, Any]) -> tuple[Delivery, Ticket]:
        while True:
            live = self._live
            ticket = live.spool.emit(payload_type, payload) if live is not None else None
            if live is not None and isinstance(ticket, Ticket):
                return live, ticket
            if live is None or (isinstance(ticket, Refused) and ticket.name in OVER):
                await self._begin_anew(live)
            else:
                await self._clock.sleep(AGAIN_MS)

    async def _begin_anew(self, over: Delivery | None) -> None:
        """Another session, while the one that is over is still delivered."""
        async with self._opening:
            if self._live is not over:
                return  # somebody else was faster
            if over is not None:
                self._live = None
                await self._end_task(over.session)
                self.backlog.waiting.append(over)
                if self._is_delivering and "old" not in self._tasks:
                    self._spawn("old", self._deliver_old())
            try:
                await self._begin()
            except Unavailable as fault:
                self._say_no(str(fault))
            self._try_on()
            if self._live is None:
                await self._clock.sleep(AGAIN_MS)

    def _try_on(self) -> None:
        """SP-RET-003: without a session no work is taken, so nobody has anything to tell that would begin one."""
        if self._live is None and self._is_delivering and "begin" not in self._tasks:
            self._spawn("begin", self._begin_in_the_end())

    async def _begin_in_the_end(self) -> None:
        """When enough of a full channel was delivered, or its disk is well again."""
        while self._live is None:
            await self._begin_anew(None)
        del self._tasks["begin"]

    # -------------------------------------------------------------------------------------------- delivering

    def deliver(self) -> None:
        """Begin: the node knows us. More than once is once."""
        if self._is_delivering:
            return
        self._is_delivering = True
        self._deliver_live()
        self._try_on()
        if self.backlog.waiting:
            self._spawn("old", self._deliver_old())

    def _deliver_live(self) -> None:
        if self._live is not None:
            self._spawn(self._live.session, self._live.run(self._clock))

    async def _deliver_old(self) -> None:
        await self.backlog.run(lambda: self.live_session)
        del self._tasks["old"]

    async def delivered(self, told: Told) -> None:
        """Return when the node has this record, or at once where its session is not open any more: nobody will tell."""
        for each in [self._live, *self.backlog.waiting]:
            if each is not None and each.session == told.session:
                await each.acked(told.sequence)

    # -------------------------------------------------------------------------------------------- ending

    async def close(self, reason: str, flush_ms: int) -> None:
        """CHANNEL_TERMINATED, the node's ack for as long as may be waited, and every file in order.

        A channel that is full has its end already, and takes no other one for as long as nobody acks.
        """
        live = self._live
        if live is not None:
            payload = {"termination_utc_ms": self._clock.wall_ms(), "reason": reason, "detail": ""}
            try:
                async with asyncio.timeout(flush_ms / 1000):
                    await self.delivered(await self.spool(CHANNEL_TERMINATED, payload))
            except TimeoutError:
                left = live.spool.spooled_sequence - live.spool.acked_sequence
                _log.warning("the node has not acked everything; the rest is sent at the next start", records=left)
        for name in list(self._tasks):
            await self._end_task(name)
        await self.backlog.close()
        if self._live is not None:
            no = await self._live.spool.aclose(final=True)
            if no is not None:
                _log.warning("the session is kept as unfinished", because=str(no))

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(work, name=f"evidence {name}")

    async def _end_task(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Payload(msgspec.Struct):
    lease_id: str = ""


class _Record(msgspec.Struct):
    """What of a record says whether it was told already."""

    payload_type: str
    payload: _Payload
