"""Waits for jobs from the event cursor: the node says when a job has ended, it is not asked (EVT-002)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final

from holdfast.client.answers import Job, JobOutcome, JobReceipt, JobResult, task_id_of
from holdfast.client.asynchronous.event_follower import DELETED, AsyncEventFollower, Frame
from holdfast.client.asynchronous.transport import AsyncTransport
from holdfast.client.errors import NodeRefused
from holdfast.client.replies import read_event, typed

END_EVENTS: Final = ("readable", "jobFailed", "jobExpired", "jobCancelled")
PROGRESS_EVENTS: Final = (
    "jobAssigned",
    "leaseRenewed",
    "leaseExpired",
    "leaseCancelled",
    "jobCompleted",
    "jobRequeued",
)
"""What happens to a job on its way, for those who look."""
EventCallback = Callable[[str], None]
"""Called with the name of each event of the jobs that are waited for."""
BLOCK_EVENT: Final = "blockSealed"
"""Everybody is told it: after it, jobs that may be another account's are looked at."""
READ_AT_ONCE: Final = 50
EVENTS_PATH: Final = "/events"


class AsyncCompletions:
    """Jobs that are waited for; each is reported once."""

    def __init__(
        self,
        transport: AsyncTransport,
        jobs: Iterable[Job],
        timeout_s: float | None,
        progress: EventCallback | None = None,
    ) -> None:
        self._transport, self._progress, jobs = transport, progress, list(jobs)
        self._waiting = {task_id_of(job): None for job in jobs}
        self._admitted = {job.task_id: job.event for job in jobs if isinstance(job, JobReceipt)}
        """When jobs began that are certainly our own: of them every event comes after it."""
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    async def outcomes(self) -> AsyncGenerator[JobOutcome, None]:
        after, unknown = await self._begin()
        while self._waiting:
            for outcome in await self._ended(unknown):
                yield outcome
            if not self._waiting:
                return
            try:
                async with aclosing(self._follow(after)) as found:
                    async for outcome in found:
                        yield outcome
                return
            except NodeRefused as refusal:
                if refusal.rule != DELETED:
                    raise
            self._admitted = {}  # their events are deleted: look at every job, then follow from now on
            after, unknown = await self._begin()

    async def _begin(self) -> tuple[str, list[str]]:
        """A cursor before everything that is not known yet, and the jobs that may have ended before it."""
        unknown = [id_ for id_ in self._waiting if id_ not in self._admitted]
        cursors = list(self._admitted.values())
        if unknown:
            cursors.append(int((await self._transport.call("node.getStatus", {}))["event"]))
        return str(min(cursors, default=0)), unknown

    async def _follow(self, after: str) -> AsyncGenerator[JobOutcome, None]:
        types = [*END_EVENTS, *([BLOCK_EVENT] if len(self._admitted) < len(self._waiting) else [])]
        types += PROGRESS_EVENTS if self._progress is not None else ()
        follower = AsyncEventFollower(self._transport, EVENTS_PATH, {"types": ",".join(types)}, self._deadline_s)
        async with aclosing(follower.batches(after)) as batches:
            async for frames in batches:
                for outcome in await self._ended(self._named_in(frames)):
                    yield outcome
                if not self._waiting:
                    return

    def _named_in(self, frames: Sequence[Frame]) -> list[str]:
        """The waiting jobs that these events may have ended, each once."""
        named: dict[str, None] = {}
        for _, name, data in frames:
            if name == BLOCK_EVENT:
                named |= {id_: None for id_ in self._waiting if id_ not in self._admitted}
            elif (id_ := read_event(data).task_id) in self._waiting and id_ is not None:
                if self._progress is not None:
                    self._progress(name)
                if name in END_EVENTS:
                    named[id_] = None
        return list(named)

    async def _ended(self, ids: Sequence[str]) -> list[JobOutcome]:
        """Of these the ones that have ended. A block may have been rolled back since: such a job waits on."""
        outcomes = list[JobOutcome]()
        for first in range(0, len(ids), READ_AT_ONCE):
            some = ids[first : first + READ_AT_ONCE]
            answers = await self._transport.batch("cap.getResult", [{"task_id": id_} for id_ in some])
            for id_, answer in zip(some, answers, strict=True):
                if isinstance(answer, NodeRefused):
                    if answer.name != "NoResultYet":
                        outcomes.append(JobOutcome(id_, error=answer))
                else:
                    outcomes.append(JobOutcome(id_, typed(JobResult, answer)))
        for outcome in outcomes:
            del self._waiting[outcome.task_id]
            self._admitted.pop(outcome.task_id, None)
        return outcomes
