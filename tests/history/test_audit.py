"""An audit decides every tick of any history again and finds the first assignment that the rules do not give."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.core.core_driver import CoreDriver
from tests.core.match.test_match_histories import STEPS, random_core
from tests.counts import counts
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.world import SimulatedFiles

from holdfast.core import journal_codec
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, JournalHead, head_of
from holdfast.core.base.values import Term
from holdfast.core.lease.messages import JobAssigned
from holdfast.core.match import selection
from holdfast.core.match.messages import Match
from holdfast.core.match.provider_index import IndexedProvider
from holdfast.core.match.selection import Shuffled
from holdfast.core.policy import MatchOrder, Policy
from holdfast.core.policy_change.messages import AdoptPolicy
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.audit import AuditReport, audit
from holdfast.history.full_journal import FullJournal

pytestmark = pytest.mark.rule("MAT-006")
TimedEvents = tuple[int, list[Event]]
"""Events of one moment."""


def random_history(chance: random.Random, order: str = "shuffle", steps: int = 60) -> tuple[list[TimedEvents], Policy]:
    """A history as batches of events, each with its time."""
    core = random_core(chance, order)
    policy = core.state.policy
    batches = [(core.now_ms, list(core.events))]
    core.do(AdoptPolicy(policy))
    for _ in range(steps):
        chance.choice(STEPS)(core, chance)
        if chance.random() < 0.6:
            core.ask(Match())
        seen = sum(len(events) for _, events in batches)
        if len(core.events) > seen:
            batches.append((core.now_ms, core.events[seen:]))
    return batches, policy


def journal_of(batches: list[TimedEvents]) -> FullJournal:
    disk, tip = Disk(), JournalHead()
    for time_ms, events in batches:
        batch = journal_codec.pack(tip, Term(1), events, time_ms)
        disk.batches.append(batch)
        tip = head_of(batch)
    return FullJournal(SimulatedJournal(disk), SimulatedFiles())


async def audited(batches: list[TimedEvents], policy: Policy, since: int = 1, until: int | None = None) -> AuditReport:
    done = await audit(journal_of(batches), SimulatedFiles(), policy, since, until)
    assert isinstance(done, AuditReport), done
    return done


def assignments(batches: list[TimedEvents]) -> list[tuple[int, JobAssigned]]:
    """With their event numbers."""
    events = [event for _, some in batches for event in some]
    return [(number, event) for number, event in enumerate(events, 1) if isinstance(event, JobAssigned)]


@pytest.mark.parametrize("part", range(3))
async def test_every_assignment_of_any_history_is_found_to_be_right(part: int) -> None:
    chance, total = random.Random(f"audit {part}"), 0
    for number in range(counts(8, 300)):
        batches, policy = random_history(chance, ("shuffle", "spread", "scored")[number % 3])
        done = await audited(batches, policy)
        assert done.difference is None, done
        assert done.assignments == len(assignments(batches))
        total += done.assignments
    assert total > 20


def sample_history() -> tuple[list[TimedEvents], Policy]:
    """With enough in it."""
    chance = random.Random(5)
    while True:
        batches, policy = random_history(chance)
        if len(assignments(batches)) > 12:
            return batches, policy


def changed(batches: list[TimedEvents], which: int, change: Callable[[JobAssigned], Event | None]) -> list[TimedEvents]:
    """The same history with another `which`-th assignment; None takes it away."""
    target = assignments(batches)[which][1]
    return [
        (ms, [new for event in some if (new := change(target) if event is target else event) is not None])
        for ms, some in batches
    ]


FORGERIES: list[Callable[[JobAssigned], Event]] = [
    lambda event: msgspec.structs.replace(event, lease_id=b"x" * 32),
    lambda event: msgspec.structs.replace(event, price=event.price + 1),
    lambda event: msgspec.structs.replace(event, t_deadline_ms=event.t_deadline_ms + 1),
    lambda event: msgspec.structs.replace(event, units=0, epoch=0),
    lambda event: msgspec.structs.replace(event, epoch=event.epoch + 1),
]


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("which", [0, 7])
async def test_an_assignment_that_was_changed_is_named_with_both_sides(
    forge: Callable[[JobAssigned], Event], which: int
) -> None:
    batches, policy = sample_history()
    number, right = assignments(batches)[which]
    done = await audited(changed(batches, which, forge), policy)
    assert done.difference is not None
    assert (done.difference.event, done.difference.expected, done.difference.actual) == (number, right, forge(right))
    assert done.assignments <= which


async def test_an_assignment_that_was_left_out_of_its_tick_is_missed() -> None:
    batches, policy = sample_history()
    numbers = [number for number, _ in assignments(batches)]
    which = next(at for at, number in enumerate(numbers) if number + 1 in numbers)
    for gone in (which, which + 1):
        done = await audited(changed(batches, gone, lambda _: None), policy)
        assert done.difference is not None
        assert (done.difference.event, done.difference.expected) == assignments(batches)[gone]


async def test_an_assignment_that_no_tick_gives_is_named() -> None:
    batches, policy = sample_history()
    number, right = assignments(batches)[0]
    twice = [
        (ms, [each for event in some for each in ([event] * 2 if event is right else [event])]) for ms, some in batches
    ]
    done = await audited(twice, policy)
    assert done.difference is not None
    assert (done.difference.event, done.difference.actual) == (number + 1, right)


class ContrarySelection(Shuffled):
    """A broken matcher: it prefers the last."""

    __slots__ = ()

    def __init__(self, room: selection.CandidatePool, seed: object) -> None:
        super().__init__(room, seed)  # type: ignore[arg-type]
        self._entries: Iterator[IndexedProvider] = iter(list(room.entries())[::-1])
        self._entry = next(self._entries, None)


async def test_a_journal_made_by_a_broken_matcher_is_found_at_its_first_wrong_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(selection.SELECTION_ORDERS, MatchOrder.SHUFFLE, ContrarySelection)
        batches, policy = sample_history()
    done = await audited(batches, policy)
    assert done.difference is not None
    actual, right = done.difference.actual, done.difference.expected
    assert isinstance(actual, JobAssigned)
    assert isinstance(right, JobAssigned)
    assert actual.provider_id != right.provider_id
    assert actual.job_id == right.job_id


async def test_an_audit_of_a_part_begins_at_a_snapshot_and_says_where_it_was() -> None:
    batches, policy = sample_history()
    events = sum(len(some) for _, some in batches)
    journal, files = journal_of(batches), SimulatedFiles()
    since = assignments(batches)[6][0]
    start = await journal.batch_of(since)  # type: ignore[arg-type]
    assert start is not None
    await snapshot_files.make(files, journal, policy, until=start - 1)  # type: ignore[arg-type]
    read: list[int] = []
    done = await audit(journal, files, policy, since, None, lambda tip: read.append(tip.number))
    assert isinstance(done, AuditReport)
    assert (done.first, done.last, done.difference, read[0]) == (since, events, None, start)
    upto = await audited(batches, policy, 1, since - 1)
    assert (upto.last, upto.difference) == (since - 1, None)
    beyond = await audit(journal, files, policy, events + 1)
    assert isinstance(beyond, Refused)


async def test_an_empty_journal_is_right() -> None:
    core = CoreDriver()
    done = await audited([], core.state.policy)
    assert (done.difference, done.assignments) == (None, 0)
