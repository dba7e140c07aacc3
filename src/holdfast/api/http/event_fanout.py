"""Events for many subscribers (EVT-001): the newest are in memory, each is encoded once.

A subscriber has no queue, only a cursor. When it is ready for more it takes the events after its cursor, from memory
where memory reaches back far enough, else from the journal. So a slow subscriber costs nothing but its own connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import msgspec

from holdfast.api.derived_events import BlockFold, Cursor, primed_fold
from holdfast.api.node_access import NodeAccess
from holdfast.api.public_events import JOB_FIELD, EventFilter, event_json, public_name
from holdfast.api.visibility import UNKNOWN_OWNER
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.event import Event
from holdfast.core.base.values import EventNo, TaskId
from holdfast.engine import queries
from holdfast.engine.event_stream import StoredEvent
from holdfast.engine.queries.jobs import GetOwnerOfJob, JobOwner

FRAMES_KEPT: Final = 2_048
FRAMES_PER_READ: Final = 64
"""How many events a subscriber takes at a time."""
WAKES_PER_TURN: Final = 64
"""How many subscribers are woken before other tasks get a turn of the event loop."""
TICK_S: Final = 1.0
PAUSE_S_PER_SUBSCRIBER, PAUSE_S_MAX = 0.0001, 0.1
"""Between two rounds of waking: hardly anything for a few subscribers, ten rounds a second for a thousand."""
STOPPED: Final = Refused("EVT-001", "the node has stopped", "resume from your cursor", "Unavailable")
COMPLETE: Final = Refused("EVT-001", "these are all events up to now", "resume from your cursor")
_encode = msgspec.json.Encoder().encode


class EventFrame:
    """One event under one name, encoded when the first subscriber needs it."""

    __slots__ = ("_json", "_shown", "_stored", "_stream", "_views", "derived", "index", "number", "owner", "topic")

    def __init__(
        self, stored: StoredEvent, topic: str = "", shown: frozenset[str] = frozenset(), index: int = 0
    ) -> None:
        self._stored, self.number, self._shown, self.index = stored, stored.number, shown, index
        self.derived: list[EventFrame] = []
        """EVT-002: what it means for results, told before it."""
        self.topic = topic or public_name(type(stored.event), stored.event)
        self._json = self._stream = b""
        self._views: dict[tuple[str, frozenset[str]], EventFrame] = {}
        """By the name and the fields that subscribers see: a handful, since few principals differ."""
        self.owner: JobOwner | None = None
        """Whose job it is about; None until it was looked up."""

    @property
    def job_id(self) -> TaskId | None:
        """The job whose caller may see this."""
        field = JOB_FIELD.get(type(self._stored.event))
        return (
            None if field is None else getattr(self._stored.event, field) or None
        )  # empty where the event is about no job

    def for_subscriber(self, wanted: EventFilter) -> EventFrame | None:
        """The frame as this subscriber sees it: under the name it subscribed to, with the fields it may see."""
        topic = wanted.topic(self._stored.event)
        shown = wanted.fields(self._stored.event, self.owner) if topic is not None else None
        if topic is None or shown is None:
            return None
        if (view := self._views.get((topic, shown))) is None:
            view = self._views[topic, shown] = EventFrame(self._stored, topic, shown, self.index)
        return view

    def derive(self, events: Sequence[Event]) -> EventFrame:
        """This frame, with what it means for results."""
        stored = self._stored
        for index, event in enumerate(events, start=1):
            self.derived.append(EventFrame(StoredEvent(stored.number, stored.time_ms, event), index=index))
        return self

    @property
    def json(self) -> bytes:
        if not self._json:
            told = event_json(self._stored, self.topic, self._shown)
            self._json = _encode(told | {"index": self.index} if self.index else told)
        return self._json

    @property
    def sse(self) -> bytes:
        """The frame of a server-sent event; the JSON has no line breaks."""
        if not self._stream:
            cursor = f"{self.number}.{self.index}" if self.index else f"{self.number}"
            self._stream = b"id: %s\nevent: %s\ndata: %s\n\n" % (cursor.encode(), self.topic.encode(), self.json)
        return self._stream


class Subscriber:
    """A subscription and its cursor."""

    def __init__(
        self, cursor: Cursor, event_filter: EventFilter, may_stay: Callable[[], bool], until: EventNo | None = None
    ) -> None:
        self.after, self.event_filter, self.may_stay = cursor.after, event_filter, may_stay
        self._until = until
        """It ends once it has come so far; None: never."""
        self._begun = cursor
        self.fold: BlockFold | None = None
        """While it reads the journal: what blocks mean for results, as of its cursor."""
        self.end_reason: Refused | None = None
        """Why it ends; None while it lasts."""
        self.is_heartbeat_due = False
        self.wake = asyncio.Event()
        self.older: AsyncIterator[StoredEvent] | None = None

    @property
    def is_complete(self) -> bool:
        return self._until is not None and self.after >= self._until

    def end(self, reason: Refused) -> None:
        self.end_reason = self.end_reason or reason
        self.wake.set()

    def seen(self, frames: Sequence[EventFrame]) -> list[EventFrame]:
        """These frames as the subscriber sees them, each after what is derived from it."""
        every = [each for frame in frames for each in (*frame.derived, frame)]
        begun, views = self._begun, list[EventFrame]()
        for frame in every:
            is_known = frame.number == begun.after + 1 and 0 < frame.index <= begun.index
            if not is_known and (view := frame.for_subscriber(self.event_filter)) is not None:
                views.append(view)
        return views


class EventFanout:
    """Follows the journal while there are subscribers; without any it rests."""

    def __init__(self, access: NodeAccess, heartbeat_ms: int) -> None:
        self._access, self._heartbeat_s = access, heartbeat_ms / 1000
        self.subscribers: set[Subscriber] = set()
        self._kept: list[EventFrame] = []
        self._base = EventNo(0)
        """The number before the first frame kept."""
        self._source: object = None
        self._history_turn = asyncio.Semaphore(1)
        self._dirty = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def join(self, subscriber: Subscriber) -> None:
        self.subscribers.add(subscriber)
        if self._following is None:
            self._kept, self._base = [], self._access.source.replication_status().tip.last
            self._restart_following()
            self._tasks = [asyncio.create_task(self._wake_all()), asyncio.create_task(self._tick())]
        elif self._following.done():  # the source has ended before and may have begun again
            self._restart_following()

    async def leave(self, subscriber: Subscriber) -> None:
        self.subscribers.discard(subscriber)
        await _close(subscriber)
        if not self.subscribers:
            await self._stop_following()

    def end(self, reason: Refused) -> None:
        """End all subscriptions; the subscribers leave by themselves."""
        for subscriber in list(self.subscribers):
            subscriber.end(reason)

    async def _stop_following(self) -> None:
        tasks = [*self._tasks, *([self._following] if self._following else [])]
        self._tasks, self._following = [], None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------ reading

    async def next(self, subscriber: Subscriber) -> Sequence[EventFrame]:
        """Some events after the subscriber's cursor, as soon as there are any.

        None where a heartbeat is due or, with `end_reason` set, the subscription ends. All durable events of a source
        that has stopped come before the end.
        """
        while subscriber.end_reason is None or subscriber.end_reason is STOPPED:
            subscriber.wake.clear()
            if subscriber.is_complete:
                subscriber.end(COMPLETE)
                return ()
            async with self._turn_of(subscriber):
                frames = await self._frames_after(subscriber)
                is_known = subscriber.event_filter.is_all or await self._load_owners(subscriber, frames)
                mine = subscriber.seen(frames) if is_known else []
            if frames and is_known:
                subscriber.after = frames[-1].number
                if mine:
                    subscriber.is_heartbeat_due = False
                    return mine
                await asyncio.sleep(0)  # many events that this one does not see must not keep others waiting
            elif subscriber.is_heartbeat_due or subscriber.end_reason is not None:
                subscriber.is_heartbeat_due = False
                return ()
            else:
                await subscriber.wake.wait()
        return ()

    @asynccontextmanager
    async def _turn_of(self, subscriber: Subscriber) -> AsyncIterator[None]:
        """SEC-002: those who read old events take turns, with a pause as long as the turn was: half of the time is for
        everybody else, however many they are."""
        if subscriber.after >= self._base:
            yield
            return
        async with self._history_turn:
            began = time.perf_counter()
            yield
            await asyncio.sleep(min(PAUSE_S_MAX, time.perf_counter() - began))

    async def _frames_after(self, subscriber: Subscriber) -> Sequence[EventFrame]:
        if subscriber.after >= self._base:
            await _close(subscriber)
            at = subscriber.after - self._base
            return self._kept[at : at + FRAMES_PER_READ]
        try:
            return await self._frames_from_journal(subscriber)
        except (Unavailable, Corrupt) as fault:
            subscriber.end(_end_reason(fault))
            return ()

    async def _load_owners(self, subscriber: Subscriber, frames: Sequence[EventFrame]) -> bool:
        """Look up whose jobs these are about: in memory, or in the tables where a job has ended."""
        try:
            for frame in frames:
                if frame.owner is None and (id_ := frame.job_id) is not None:
                    source = self._access.source
                    owner = source.query_undurable(GetOwnerOfJob(id_))
                    if owner is None:
                        job = await queries.job(source, id_)
                        owner = UNKNOWN_OWNER if job is None else JobOwner(job.caller, bool(job.is_public))
                    frame.owner = owner
        except (Unavailable, Corrupt) as fault:
            subscriber.end(_end_reason(fault))
            return False
        return True

    async def _frames_from_journal(self, subscriber: Subscriber) -> list[EventFrame]:
        """From the journal, until the events kept in memory are reached."""
        if subscriber.older is None or subscriber.fold is None:
            subscriber.fold = await primed_fold(self._access.source, subscriber.after)
            subscriber.older = self._access.source.event_stream.follow(subscriber.after)
        frames: list[EventFrame] = []
        async for stored in subscriber.older:
            frames.append(EventFrame(stored).derive(subscriber.fold.add(stored.event)))
            if stored.number >= self._base or len(frames) >= FRAMES_PER_READ:
                return frames
        subscriber.end(STOPPED)
        return frames

    # ------------------------------------------------------------------------------------ following

    def _restart_following(self) -> None:
        self._source = self._access.source
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        """Append every durable event once. A source whose stream ends has stopped for good."""
        source, after = self._access.source, EventNo(self._base + len(self._kept))
        events = source.event_stream.follow(after)
        try:
            fold = await primed_fold(source, after)
            async with aclosing(events):  # type: ignore[type-var]
                async for stored in events:
                    self._append(EventFrame(stored).derive(fold.add(stored.event)))
                    if stored.number % FRAMES_PER_READ == 0:
                        await asyncio.sleep(0)
            reason = STOPPED
        except (Unavailable, Corrupt) as fault:
            reason = _end_reason(fault)
        if source is self._access.source:
            self.end(reason)

    def _append(self, frame: EventFrame) -> None:
        self._kept.append(frame)
        self._dirty.set()
        if len(self._kept) > 2 * FRAMES_KEPT:
            del self._kept[:FRAMES_KEPT]
            self._base = EventNo(self._base + FRAMES_KEPT)

    async def _wake_all(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            for at, subscriber in enumerate(list(self.subscribers)):
                subscriber.wake.set()
                if at % WAKES_PER_TURN == WAKES_PER_TURN - 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(min(PAUSE_S_MAX, PAUSE_S_PER_SUBSCRIBER * len(self.subscribers)))

    async def _tick(self) -> None:
        """Once a second: follow the new source after a takeover, end subscriptions of invalid keys, send heartbeats."""
        waited_s, every_s = 0.0, min(TICK_S, self._heartbeat_s)
        while True:
            await asyncio.sleep(every_s)
            waited_s += every_s
            is_beat = waited_s >= self._heartbeat_s
            waited_s = 0.0 if is_beat else waited_s
            if self._source is not self._access.source:  # a standby has become the owner: same events, another stream
                if self._following is not None:
                    self._following.cancel()
                self._restart_following()
            for at, subscriber in enumerate(list(self.subscribers)):
                if not subscriber.may_stay():
                    subscriber.end(Refused("SEC-001", "the key is no longer valid", "use another one", "Unauthorized"))
                if is_beat:
                    subscriber.is_heartbeat_due = True
                    subscriber.wake.set()
                if at % WAKES_PER_TURN == WAKES_PER_TURN - 1:
                    await asyncio.sleep(0)


def _end_reason(fault: Unavailable | Corrupt) -> Refused:
    return Refused(fault.rule, fault.message, fault.hint, type(fault).__name__)


async def _close(subscriber: Subscriber) -> None:
    older, subscriber.older = subscriber.older, None
    if older is not None:
        with suppress(RuntimeError):  # it is being read at this moment, by a task that is being cancelled
            await older.aclose()  # type: ignore[attr-defined]
