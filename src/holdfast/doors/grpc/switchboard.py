"""From durable events to the agents they concern: one task follows the journal for all streams (MAT-007).

An event costs one look-up, however many agents are connected; an agent that waits costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from holdfast.core.event import Event
from holdfast.core.lease.acts import JobAssigned, LeaseClosed
from holdfast.core.lease.record import Lease
from holdfast.core.proof.acts import ProofAccepted
from holdfast.core.proof.votes import VoteCast
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.state import State
from holdfast.core.values import EventNo, LeaseId, ProviderId
from holdfast.engine.loop import Engine
from holdfast.engine.tail import Recorded

WAITING_MAX: Final = 1_024
"""What may lie before an agent that takes nothing."""
REPLACED: Final = Refused("PRV-003", "another stream of this provider took over", "run one agent with a key")
TOO_SLOW: Final = Refused("PRV-003", f"{WAITING_MAX} messages were not taken", "connect again", "BackPressure")
_log = structlog.get_logger()


class Over(msgspec.Struct, frozen=True):
    """A stream is to end: with a no, with an error, or, where there is neither, in peace."""

    because: Refused | Exception | None = None
    is_draining: bool = False


class Seat:
    """One connected agent: what is to be told it, in order."""

    def __init__(self, public: bytes, id_: ProviderId) -> None:
        self.public, self.provider_id = public, id_
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()
        """`Recorded` events, messages, and at last `Over`."""
        self.leases: set[LeaseId] = set()
        self.since = EventNo(0)
        """Up to this event it was told what is, not what happened."""

    def tell(self, what: object) -> None:
        if self.waiting.qsize() < WAITING_MAX:
            self.waiting.put_nowait(what)
        elif self.waiting.qsize() == WAITING_MAX:
            self.waiting.put_nowait(Over(TOO_SLOW))

    def end(self, over: Over) -> None:
        self.waiting.put_nowait(over)


class Switchboard:
    """Who is connected, and which live lease is whose."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seats: dict[ProviderId, Seat] = {}
        self._holders: dict[LeaseId, Seat] = {}
        self._following: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._seats)

    async def take_seat(self, seat: Seat) -> list[Lease]:
        """From now on this seat is told what happens; its leases as they are at that moment. An older seat ends."""
        older = self._seats.get(seat.provider_id)
        if older is not None:
            self.leave(older)
            older.end(Over(REPLACED))
        self._seats[seat.provider_id] = seat
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow(self._engine.durable.last), name="switchboard")
        return await self._engine.ask(lambda state: self._leases_of(seat, state))

    def leave(self, seat: Seat) -> None:
        """Nothing of it stays; also where it has left before."""
        if self._seats.get(seat.provider_id) is seat:
            del self._seats[seat.provider_id]
        for lease_id in seat.leases:
            if self._holders.get(lease_id) is seat:
                del self._holders[lease_id]
        if not self._seats and self._following is not None:
            self._following.cancel()
            self._following = None

    def _leases_of(self, seat: Seat, state: State) -> list[Lease]:
        """What is now: everything after it comes as an event, nothing twice and nothing never."""
        seat.since = state.last_event
        found: list[Lease] = []
        for lease in state.leases.of(seat.provider_id):
            found.append(msgspec.structs.replace(lease))
            self._hold(seat, lease.id)
        return found

    def _hold(self, seat: Seat, lease_id: LeaseId) -> None:
        self._holders[lease_id] = seat
        seat.leases.add(lease_id)

    # ------------------------------------------------------------------------------------ following

    async def _follow(self, after: EventNo) -> None:
        why: Exception = Unavailable("ENG-006", "the node stops", "connect again in a moment")
        try:
            async for recorded in self._engine.tail.follow(after):
                dispatch = _DISPATCH.get(type(recorded.event))
                if dispatch is not None and (seat := dispatch(self, recorded.event)) is not None:
                    seat.tell(recorded)
        except Exception as fault:
            _log.exception("agents are not told any more what happens")
            why = fault
        for seat in list(self._seats.values()):
            seat.end(Over(why))

    def _assigned(self, event: JobAssigned) -> Seat | None:
        seat = self._seats.get(event.provider_id)
        if seat is not None:
            self._hold(seat, event.lease_id)
        return seat

    def _ended(self, lease_id: LeaseId) -> Seat | None:
        seat = self._holders.pop(lease_id, None)
        if seat is not None:
            seat.leases.discard(lease_id)
        return seat


_DISPATCH: Final[dict[type[Event], Callable[[Switchboard, Any], Seat | None]]] = {
    JobAssigned: lambda board, event: board._assigned(event),
    LeaseClosed: lambda board, event: board._ended(event.id),
    ProofAccepted: lambda board, event: board._ended(event.lease_id),
    VoteCast: lambda board, event: board._ended(event.lease_id),
}


def is_news(seat: Seat, recorded: Recorded) -> bool:
    """Not already in what the seat was told when it was taken."""
    return recorded.number > seat.since
