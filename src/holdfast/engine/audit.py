"""Every assignment decided once more from the journal alone (MAT-006): what the rules give, beside what was given.

Before a tick's first event the fold has all that the tick was decided from: queue, providers, quotas, the counter, the
head's beacon and the policy; its time is that of its batch. A tick is in one batch, so an audit begins with a batch.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import law
from holdfast.core.event import Batch, Event, check_follows, tip_of
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.match.decide import match_again
from holdfast.core.match.fairness import RequestersCounted
from holdfast.core.policy import Policy
from holdfast.core.refusal import Corrupt, Refused
from holdfast.core.state import State
from holdfast.core.values import BatchNo, EventNo
from holdfast.engine import snapshot
from holdfast.engine.chapters import Progress
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.project import drop_images
from holdfast.ports import Files


class Difference(msgspec.Struct, frozen=True):
    """The first event that is not what the rules give; None stands for nothing."""

    event: EventNo
    batch: BatchNo
    time_ms: int
    found: Event | None
    expected: Event | None


class Audited(msgspec.Struct):
    """What an audit came to."""

    first: int = 0
    """The events that were looked at, from"""
    last: int = 0
    """to."""
    ticks: int = 0
    assignments: int = 0
    """Those that were decided again, and equal."""
    older: int = 0
    """Those from before version 0.3, which journaled no policy and matched by simpler rules: they are not judged."""
    difference: Difference | None = None


async def audit(
    journal: LongJournal,
    files: Files,
    policy: Policy,
    since: int = 1,
    until: int | None = None,
    progress: Progress | None = None,
) -> Audited | Refused:
    """Fold up to `since`, from a snapshot where one is near, then decide every tick again up to `until`."""
    end = await journal.tip()
    last = end.last if until is None else min(until, end.last)
    if since > max(1, last):
        return Refused("MAT-006", f"event {since} is behind the last one, {last}", name="InvalidParams")
    start = await journal.batch_of(EventNo(since))
    state, tip = await snapshot.newest(files, journal, policy, start - 1 if start else 0)
    floor = await journal.floor()
    if tip.number < floor:
        says = f"batches 1 to {floor} were deleted, and no snapshot stands for what came before event {since}"
        return Refused("MAT-006", says, "begin later, with --from, or bring the chapters back")
    done = Audited(max(1, since), last)
    async for batch in journal.read(tip.number, end.number):
        check_follows(tip, batch)
        if batch.first > last:
            break
        _walk(state, batch, done, is_judged=batch.last >= since)
        tip = tip_of(batch)
        drop_images(state)
        if progress is not None:
            progress(tip)
        if done.difference is not None:
            break
    return done


def _walk(state: State, batch: Batch, done: Audited, *, is_judged: bool) -> None:
    events, at = law.unpack(batch), 0
    while at < len(events):
        event, count = events[at], 1
        if is_judged and isinstance(event, _TICKS):
            if isinstance(event, JobAssigned) and not event.units and not state.adopted:
                done.older += 1
            else:
                count = _judge(state, batch, events[at:], done)
        if done.difference is not None:
            return
        for each in events[at : at + count]:
            _apply(state, each)
        at += count


_TICKS: Final = (JobAssigned, RequestersCounted)
"""What only a tick does."""


def _judge(state: State, batch: Batch, events: list[Event], done: Audited) -> int:
    """Decide the tick that begins here; how many events it gives, all of them equal to those that are there."""
    expected = match_again(state, batch.time_ms)
    for at in range(max(1, len(expected))):
        found = events[at] if at < len(events) else None
        right = expected[at] if at < len(expected) else None
        if found != right:
            number = EventNo(state.last_event + 1 + at)
            done.difference = Difference(number, batch.number, batch.time_ms, found, right)
            return 0
    done.ticks += 1
    done.assignments += sum(isinstance(event, JobAssigned) for event in expected)
    return len(expected)


def _apply(state: State, event: Event) -> None:
    try:
        law.apply(state, event)
    except Corrupt:
        raise
    except Exception as fault:
        raise Corrupt("ENG-001", f"event {state.last_event} cannot have happened: {event!r:.200}") from fault
