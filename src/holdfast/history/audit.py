"""Every assignment decided again from the journal alone, and compared with the one that was made (MAT-006).

Before a tick's first event the fold has everything that the tick was decided from: queue, providers, quotas, the
counter, the head's beacon and the policy. Its time is that of its batch. A tick never spans two batches.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Batch, Event, check_follows, head_of
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.match.decide import replay_tick
from holdfast.core.match.messages import RequestersCounted
from holdfast.core.policy import Policy
from holdfast.core.state import State
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import ProgressCallback
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Files


class Difference(msgspec.Struct, frozen=True):
    """The first event that differs from what the rules give; None stands for no event."""

    event: EventNo
    batch: BatchNo
    time_ms: int
    actual: Event | None
    expected: Event | None


class AuditReport(msgspec.Struct):
    """The outcome of an audit."""

    first: int = 0
    """The first event that was audited."""
    last: int = 0
    """The last event that was audited."""
    ticks: int = 0
    assignments: int = 0
    """Assignments that were decided again, with the same outcome."""
    difference: Difference | None = None


async def audit(
    journal: FullJournal,
    files: Files,
    policy: Policy,
    since: int = 1,
    until: int | None = None,
    progress: ProgressCallback | None = None,
) -> AuditReport | Refused:
    """Fold up to `since`, from the nearest snapshot, then decide every tick again up to `until`."""
    end = await journal.tip()
    last = end.last if until is None else min(until, end.last)
    if since > max(1, last):
        return Refused("MAT-006", f"event {since} is after the last one, {last}", name="InvalidParams")
    start = await journal.batch_of(EventNo(since))
    state, head = await snapshot_files.load_newest(files, journal, policy, start - 1 if start else 0)
    trimmed = await journal.trimmed_until()
    if head.number < trimmed:
        message = f"batches 1 to {trimmed} were deleted, and there is no snapshot from before event {since}"
        return Refused("MAT-006", message, "begin later, with --from, or bring the segments back")
    report = AuditReport(max(1, since), last)
    state.record_nothing()
    async for batch in journal.read(head.number, end.number):
        check_follows(head, batch)
        if batch.first > last:
            break
        _audit_batch(state, batch, report, is_checked=batch.last >= since)
        head = head_of(batch)
        if progress is not None:
            progress(head)
        if report.difference is not None:
            break
    return report


def _audit_batch(state: State, batch: Batch, report: AuditReport, *, is_checked: bool) -> None:
    events, at = journal_codec.unpack(batch), 0
    while at < len(events):
        count = 1
        if is_checked and isinstance(events[at], _TICK_EVENTS):
            count = _check_tick(state, batch, events[at:], report)
        if report.difference is not None:
            return
        for event in events[at : at + count]:
            journal_codec.apply_stored(state, event)
        at += count


_TICK_EVENTS: Final = (JobAssigned, RequestersCounted)
"""Events that only a tick makes."""


def _check_tick(state: State, batch: Batch, events: list[Event], report: AuditReport) -> int:
    """Decide the tick that begins here; the number of its events, where all of them are equal."""
    expected = replay_tick(state, batch.time_ms)
    for at in range(max(1, len(expected))):
        actual = events[at] if at < len(events) else None
        right = expected[at] if at < len(expected) else None
        if actual != right:
            number = EventNo(state.last_event + 1 + at)
            report.difference = Difference(number, batch.number, batch.time_ms, actual, right)
            return 0
    report.ticks += 1
    report.assignments += sum(isinstance(event, JobAssigned) for event in expected)
    return len(expected)
