"""The leases in hand: takes offers or declines them, keeps leases alive, and hears from the node how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from holdfast.agent.carrier import ACCEPTED, LOST, PROGRESS, Carrier
from holdfast.agent.client import NodeClient
from holdfast.agent.executors import Registry
from holdfast.agent.held import Held, Marks, Word
from holdfast.agent.settings import AgentSettings
from holdfast.agent.shipper import Shipper
from holdfast.agent.stream import Answer, WorkStream
from holdfast.agent.work import Found, Taken, WorkFolder
from holdfast.core.refusal import Refused, Unavailable
from holdfast.ports import Clock
from holdfast.wire.acts import Act
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

IDLE_MS: Final = 60_000
GIVE_BACK_MS: Final = 2_000
"""How long the node may take to hear that work is given back; without its word the lease stays on disk."""
_log = structlog.get_logger()


class Hands:
    """All leases of this process, and the stream on which they are spoken of, while there is one."""

    def __init__(
        self,
        settings: AgentSettings,
        registry: Registry,
        work: WorkFolder,
        shipper: Shipper,
        carrier: Carrier,
        client: NodeClient,
        clock: Clock,
        on_progress: Callable[[], None],
    ) -> None:
        self._settings, self._registry, self._work = settings, registry, work
        self._shipper, self._carrier, self._client, self._clock = shipper, carrier, client, clock
        self.progressed = on_progress
        self.held: dict[bytes, Held] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._saying: set[asyncio.Task[None]] = set()
        self._stream: WorkStream | None = None
        self._heartbeat_ms, self._beat_due_ms = IDLE_MS, 0
        self._changed = asyncio.Event()
        self.is_stopping = False

    # -------------------------------------------------------------------------------------------- taking

    def resume(self, found: Found) -> None:
        """Take up what an earlier process left."""
        held = self.held[found.taken.lease_id] = Held.resumed(found)
        _log.info("lease taken up again", lease=held.id.hex(), has_output=held.has_output)
        self._spawn(held, self._carrier.carry(held))

    def offered(self, offer: pb.Offer) -> None:
        """Known: the node repeats itself. New: take it, if there is room."""
        self._client.node_time(offer.time_ms)
        held = self.held.get(offer.lease_id)
        if held is None and offer.is_submitted:
            return  # all is said; the verdict is the node's
        if held is None and (why := self._why_not(offer)):
            _log.info("lease declined", lease=offer.lease_id.hex(), reason=why)
            self._say(Act("decline", lease_id=offer.lease_id, reason=why))
            return
        is_new = held is None
        if held is None:
            held = self.held[offer.lease_id] = Held(_taken(offer))
        held.mark(_marks(offer), self._clock.monotonic_ms())
        self._changed.set()
        if is_new:
            self._spawn(held, self._take(held))
        elif held.is_kept:
            held.hear(Word.SUBMITTED if offer.is_submitted else Word.LIVES)
            if not offer.is_acked:
                self._ask(held)

    def _why_not(self, offer: pb.Offer) -> str:
        if self.is_stopping:
            return "STOPPING"
        if not self._shipper.is_ready:
            return "NO_ROOM_FOR_EVIDENCE"
        if sum(held.is_working for held in self.held.values()) >= self._settings.slots:
            return "FULL"
        found = self._registry.find(offer.kind, offer.payload)
        return f"NOT_OFFERED: {found.says}" if isinstance(found, Refused) else ""

    async def _take(self, held: Held) -> None:
        """On disk first, then acknowledged, then carried through."""
        try:
            await self._work.keep_offer(held.taken)
        except Unavailable as fault:
            _log.error("lease declined", lease=held.id.hex(), because=str(fault))
            self._say(Act("decline", lease_id=held.id, reason="NO_DISK"))
            return
        held.is_kept = True
        self._ask(held)
        await self._shipper.emit(ACCEPTED, {"lease_id": held.id.hex(), "task_id": held.taken.task_id.hex()})
        await self._carrier.carry(held)

    def _spawn(self, held: Held, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[held.id] = asyncio.create_task(work)
        task.add_done_callback(partial(self._let_go, held))

    def _let_go(self, held: Held, task: asyncio.Task[None]) -> None:
        self.held.pop(held.id, None)
        self._tasks.pop(held.id, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("a lease was dropped; the next start takes it up", lease=held.id.hex(), because=repr(fault))

    # -------------------------------------------------------------------------------------------- hearing

    def welcomed(self, stream: WorkStream, welcome: pb.Welcome) -> None:
        """Say that we are there, and ask after every lease: whether it lives cannot be known from silence."""
        self._client.node_time(welcome.time_ms)
        self._stream, self._heartbeat_ms, self._beat_due_ms = stream, max(1, welcome.heartbeat_ms), 0
        for held in self.held.values():
            if held.is_kept:
                self._ask(held)
        self._changed.set()
        _log.info("work stream open", status=welcome.status, heartbeat_ms=welcome.heartbeat_ms)

    def stream_ended(self) -> None:
        self._stream = None

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    def lost(self, lease_id: bytes, reason: str) -> None:
        if (held := self.held.get(lease_id)) is not None:
            held.end("LOST", reason)

    def judged(self, lease_id: bytes, is_accepted: bool, reason: str) -> None:
        """The verdict is final: whatever it is, nothing of the lease is needed here any more (EVD-006)."""
        if (held := self.held.get(lease_id)) is not None:
            held.end("VERDICT", "accepted" if is_accepted else f"refused: {reason}")

    def draining(self) -> None:
        _log.info("the node stops; work goes on and is handed in when it is back")

    # -------------------------------------------------------------------------------------------- saying

    def _say(self, act: Act) -> asyncio.Future[Answer] | None:
        return self._stream.say(act) if self._stream is not None else None

    def _ask(self, held: Held) -> None:
        """An ACK, which the node takes once and answers as often as it is said: it tells how the lease is."""
        answer = self._say(Act("ack", lease_id=held.id))
        if answer is not None:
            answer.add_done_callback(partial(self._answered, held))

    def _answered(self, held: Held, answer: asyncio.Future[Answer]) -> bool:
        """What the node thinks of the lease, by what it says to an act; whether the act was done."""
        if answer.cancelled():
            return False
        told = answer.result()
        if told.is_done:
            held.hear(Word.LIVES)
        elif told.name in LOST:
            held.end("LOST", told.says)
        elif told.rule == "RCV-001":
            held.hear(Word.SUBMITTED)
        else:
            _log.warning("the node refused", lease=held.id.hex(), rule=told.rule, says=told.says)
        return told.is_done

    async def pulse(self) -> None:
        """Beats and renewals, each when it is due, as long as there is a stream."""
        while True:
            self._changed.clear()
            wait_ms = self._do_what_is_due() if self._stream is not None else IDLE_MS
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _do_what_is_due(self) -> int:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._beat_due_ms:
            self._beat_due_ms = now_ms + self._heartbeat_ms
            self.beat()
        for held in [held for held in self.held.values() if held.is_untold and held.is_kept]:
            if held.renew_due_ms is not None and held.renew_due_ms <= now_ms:
                self._renew(held)
        dues = [held.renew_due_ms for held in self.held.values() if held.renew_due_ms is not None and held.is_untold]
        return max(1, min([self._beat_due_ms, *dues]) - self._clock.monotonic_ms())

    def beat(self) -> None:
        """PRV-002; beside it, a question after leases whose verdict is awaited: it may have been said while away."""
        takes = 0 if self.is_stopping or not self._shipper.is_ready else self._settings.slots
        self._say(self._client.beat(takes, sum(held.is_working for held in self.held.values())))
        for held in self.held.values():
            if held.told is not None and held.is_kept:
                self._ask(held)

    def _renew(self, held: Held) -> None:
        renewal, held.renew_due_ms = held.renewals + 1, None
        answer = self._say(Act("renew", lease_id=held.id, renewal=renewal))
        if answer is not None:
            answer.add_done_callback(partial(self._renewed, held, renewal))
        took_ms = self._clock.monotonic_ms() - held.begun_ms if held.begun_ms else 0
        payload = {"lease_id": held.id.hex(), "took_ms": took_ms, "renewal": renewal}
        saying = asyncio.create_task(self._shipper.emit(PROGRESS, payload))  # a full spool holds up no heartbeat
        self._saying.add(saying)
        saying.add_done_callback(self._saying.discard)

    def _renewed(self, held: Held, renewal: int, answer: asyncio.Future[Answer]) -> None:
        """One that is refused is not asked for again: the lease is as long as it can be, or the next offer tells."""
        if self._answered(held, answer):
            held.renewed(renewal, self._clock.monotonic_ms())
            self._changed.set()

    # -------------------------------------------------------------------------------------------- stopping

    async def drain(self, patience_ms: int) -> None:
        """Take nothing more; finish what runs within the patience; give back what is not done then."""
        self.is_stopping = True
        self.beat()
        until_ms = self._clock.monotonic_ms() + patience_ms
        while any(held.is_untold for held in self.held.values()) and self._clock.monotonic_ms() < until_ms:
            await self._clock.sleep(20)
        given = [self._give_back(held) for held in self.held.values() if held.is_untold and not held.has_output]
        await asyncio.gather(*given)
        left = [*self._tasks.values(), *self._saying]
        if left:
            await asyncio.wait(left, timeout=0.1)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _give_back(self, held: Held) -> None:
        """LEA-006: the job goes to others at once. Without a node nothing is said, and the lease stays on disk."""
        answer = self._say(Act("decline", lease_id=held.id, reason="STOPPING"))
        if answer is None:
            return
        await asyncio.wait({answer}, timeout=GIVE_BACK_MS / 1000)
        if answer.done() and not answer.cancelled() and answer.result().is_done:
            held.end("GIVEN_BACK", "STOPPING")


def _taken(offer: pb.Offer) -> Taken:
    return Taken(
        lease_id=offer.lease_id,
        task_id=offer.task_id,
        kind=offer.kind,
        attempt=offer.attempt,
        payload=offer.payload,
        proof=offer.proof,
        t_deadline_ms=offer.t_deadline_ms,
    )


def _marks(offer: pb.Offer) -> Marks:
    return Marks(offer.time_ms, offer.renew_by_ms, offer.t_deadline_ms, offer.renewals)
