"""Events for many at once (EVT-001): the newest in memory, each encoded once, and every viewer at its own cursor.

A viewer has no queue. It takes what lies behind its cursor when it is ready for more, from memory where that reaches
back far enough, else from the journal. So a slow one costs nothing but its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.core.values import AccountId, EventNo, TaskId
from holdfast.doors.desk import Desk
from holdfast.doors.http.topics import JOB_OF, Wanted, shown, topic_of
from holdfast.engine import read
from holdfast.engine.tail import Recorded

KEPT: Final = 2_048
A_TIME: Final = 64
"""How many events a viewer takes at a time."""
WOKEN_A_TURN: Final = 64
"""How many viewers are woken before others get a turn of the event loop."""
TICK_S: Final = 1.0
PAUSE_S_A_VIEWER, PAUSE_S_MAX = 0.0001, 0.1
"""Between two rounds of waking: hardly anything for a few viewers, ten rounds a second for a thousand."""
STOPPED: Final = Refused("EVT-001", "the node has stopped", "come back with your cursor", "Unavailable")
_encode = msgspec.json.Encoder().encode


class Frame:
    """One event under one name, encoded when the first viewer needs it."""

    __slots__ = ("_also", "_json", "_recorded", "_stream", "caller", "number", "topic")

    def __init__(self, recorded: Recorded, topic: str = "") -> None:
        self._recorded, self.number = recorded, recorded.number
        self.topic = topic or topic_of(type(recorded.event), recorded.event)
        self._json = self._stream = b""
        self._also: Frame | None = None
        self.caller: AccountId | None = None
        """Whose job it is about, once somebody has asked."""

    @property
    def job_id(self) -> TaskId | None:
        """The job whose caller may see this."""
        field = JOB_OF.get(type(self._recorded.event))
        return None if field is None else getattr(self._recorded.event, field) or None  # old ones name none

    def for_(self, wanted: Wanted) -> Frame | None:
        """As this viewer sees it: under its other name, where it has one and that was asked for."""
        topic = wanted.topic(self._recorded.event, self.caller)
        if topic is None or topic == self.topic:
            return None if topic is None else self
        if self._also is None:
            self._also = Frame(self._recorded, topic)
        return self._also

    @property
    def json(self) -> bytes:
        if not self._json:
            self._json = _encode(shown(self._recorded, self.topic))
        return self._json

    @property
    def stream(self) -> bytes:
        """As server-sent events have it; JSON has no line breaks of its own."""
        if not self._stream:
            self._stream = b"id: %d\nevent: %s\ndata: %s\n\n" % (self.number, self.topic.encode(), self.json)
        return self._stream


class Viewer:
    """Somebody who follows, and how far they have come."""

    def __init__(self, after: EventNo, wanted: Wanted, may_stay: Callable[[], bool]) -> None:
        self.after, self.wanted, self.may_stay = after, wanted, may_stay
        self.bye: Refused | None = None
        """Why it ends; set by whoever ends it."""
        self.is_beat_due = False
        self.wake = asyncio.Event()
        self.older: AsyncIterator[Recorded] | None = None

    def end(self, why: Refused) -> None:
        self.bye = self.bye or why
        self.wake.set()


class Broadcast:
    """Follows the journal while there are viewers; without any it rests."""

    def __init__(self, desk: Desk, heartbeat_ms: int) -> None:
        self._desk, self._heartbeat_s = desk, heartbeat_ms / 1000
        self.viewers: set[Viewer] = set()
        self._kept: list[Frame] = []
        self._base = EventNo(0)
        """The number before the first one kept."""
        self._source: object = None
        self._dirty = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def join(self, viewer: Viewer) -> None:
        self.viewers.add(viewer)
        if self._following is None:
            self._kept, self._base = [], self._desk.source.standing().tip.last
            self._follow_anew()
            self._tasks = [asyncio.create_task(self._wake_all()), asyncio.create_task(self._tick())]
        elif self._following.done():  # the source has ended before and may have begun again
            self._follow_anew()

    async def leave(self, viewer: Viewer) -> None:
        self.viewers.discard(viewer)
        await _close(viewer)
        if not self.viewers:
            await self._rest()

    def end(self, why: Refused) -> None:
        """Tell all viewers that it is over; they leave by themselves."""
        for viewer in list(self.viewers):
            viewer.end(why)

    async def _rest(self) -> None:
        tasks = [*self._tasks, *([self._following] if self._following else [])]
        self._tasks, self._following = [], None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------ what a viewer takes

    async def next(self, viewer: Viewer) -> Sequence[Frame]:
        """Some events behind the viewer's cursor, as soon as there are any; none where it is time for a sign of life
        or, with `bye` set, for the end. What is durable comes before the end of a source that has stopped."""
        while viewer.bye is None or viewer.bye is STOPPED:
            viewer.wake.clear()
            frames = await self._behind(viewer)
            if frames and (not viewer.wanted.is_own_alone or await self._know_callers(viewer, frames)):
                viewer.after = frames[-1].number
                if mine := [seen for frame in frames if (seen := frame.for_(viewer.wanted)) is not None]:
                    viewer.is_beat_due = False
                    return mine
                await asyncio.sleep(0)  # a long stretch of nothing for this one must not keep others waiting
            elif viewer.is_beat_due or viewer.bye is not None:
                viewer.is_beat_due = False
                return ()
            else:
                await viewer.wake.wait()
        return ()

    async def _behind(self, viewer: Viewer) -> Sequence[Frame]:
        if viewer.after >= self._base:
            await _close(viewer)
            at = viewer.after - self._base
            return self._kept[at : at + A_TIME]
        try:
            return await self._older(viewer)
        except (Unavailable, Corrupt) as fault:
            viewer.end(Refused(fault.rule, fault.says, fault.hint, type(fault).__name__))
            return ()

    async def _know_callers(self, viewer: Viewer, frames: Sequence[Frame]) -> bool:
        """Learn whose jobs these are about: from memory, or from the tables where a job is history."""
        try:
            for frame in frames:
                if frame.caller is None and (id_ := frame.job_id) is not None:
                    source = self._desk.source
                    job = source.state.queue.jobs.get(id_) or await read.job(source, id_)
                    frame.caller = AccountId("") if job is None else job.caller
        except (Unavailable, Corrupt) as fault:
            viewer.end(Refused(fault.rule, fault.says, fault.hint, type(fault).__name__))
            return False
        return True

    async def _older(self, viewer: Viewer) -> list[Frame]:
        """From the journal, until the events kept in memory are reached."""
        if viewer.older is None:
            viewer.older = self._desk.source.tail.follow(viewer.after)
        frames: list[Frame] = []
        async for recorded in viewer.older:
            frames.append(Frame(recorded))
            if recorded.number >= self._base or len(frames) >= A_TIME:
                return frames
        viewer.end(STOPPED)
        return frames

    # ------------------------------------------------------------------------------------ following

    def _follow_anew(self) -> None:
        self._source = self._desk.source
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        """Every durable event, once. A source that ends has stopped for good."""
        source = self._desk.source
        events = source.tail.follow(EventNo(self._base + len(self._kept)))
        try:
            async with aclosing(events):  # type: ignore[type-var]
                async for recorded in events:
                    self._keep(Frame(recorded))
                    if recorded.number % A_TIME == 0:
                        await asyncio.sleep(0)
            why = STOPPED
        except (Unavailable, Corrupt) as fault:
            why = Refused(fault.rule, fault.says, fault.hint, type(fault).__name__)
        if source is self._desk.source:
            self.end(why)

    def _keep(self, frame: Frame) -> None:
        self._kept.append(frame)
        self._dirty.set()
        if len(self._kept) > 2 * KEPT:
            del self._kept[:KEPT]
            self._base = EventNo(self._base + KEPT)

    async def _wake_all(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            for at, viewer in enumerate(list(self.viewers)):
                viewer.wake.set()
                if at % WOKEN_A_TURN == WOKEN_A_TURN - 1:
                    await asyncio.sleep(0)
            await asyncio.sleep(min(PAUSE_S_MAX, PAUSE_S_A_VIEWER * len(self.viewers)))

    async def _tick(self) -> None:
        """Once a second: is the source still the same, may everybody stay, who has waited long for a sign of life."""
        waited_s, every_s = 0.0, min(TICK_S, self._heartbeat_s)
        while True:
            await asyncio.sleep(every_s)
            waited_s += every_s
            is_beat = waited_s >= self._heartbeat_s
            waited_s = 0.0 if is_beat else waited_s
            if self._source is not self._desk.source:  # a standby has become the owner: same history, another tail
                if self._following is not None:
                    self._following.cancel()
                self._follow_anew()
            for at, viewer in enumerate(list(self.viewers)):
                if not viewer.may_stay():
                    viewer.end(Refused("SEC-001", "the key is good no longer", "use another one", "Unauthorized"))
                if is_beat:
                    viewer.is_beat_due = True
                    viewer.wake.set()
                if at % WOKEN_A_TURN == WOKEN_A_TURN - 1:
                    await asyncio.sleep(0)


async def _close(viewer: Viewer) -> None:
    older, viewer.older = viewer.older, None
    if older is not None:
        with suppress(RuntimeError):  # it is being read at this moment, by a task that is being cancelled
            await older.aclose()  # type: ignore[attr-defined]
