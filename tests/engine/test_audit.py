"""An audit decides every tick of any history again and finds the first assignment that the rules do not give."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest
from tests.core.test_match_histories import STEPS, _enqueue, begun
from tests.core.ways import Way
from tests.counts import counts
from tests.simulated.journal import Disk, SimulatedJournal
from tests.simulated.world import SimulatedFiles

from holdfast.core import law
from holdfast.core.adopt import AdoptPolicy
from holdfast.core.event import Event, Tip, tip_of
from holdfast.core.lease.acts import JobAssigned
from holdfast.core.match import takers
from holdfast.core.match.decide import Match
from holdfast.core.match.supply import Seat
from holdfast.core.match.takers import Shuffled
from holdfast.core.policy import MatchOrder, Policy
from holdfast.core.refusal import Refused
from holdfast.core.values import Epoch
from holdfast.engine import snapshot
from holdfast.engine.audit import Audited, audit
from holdfast.engine.longjournal import LongJournal

pytestmark = pytest.mark.rule("MAT-006")
Lot = tuple[int, list[Event]]
"""Events of one moment."""


def lived(chance: random.Random, order: str = "shuffle", steps: int = 60) -> tuple[list[Lot], Policy]:
    """A history in lots, each with the time of its batch."""
    way = begun(chance, order)
    policy = way.state.policy
    lots = [(way.now_ms, list(way.events))]
    way.do(AdoptPolicy(policy))
    for _ in range(steps):
        chance.choice(STEPS)(way, chance)
        if chance.random() < 0.6:
            way.ask(Match())
        seen = sum(len(events) for _, events in lots)
        if len(way.events) > seen:
            lots.append((way.now_ms, way.events[seen:]))
    return lots, policy


def journal_of(lots: list[Lot]) -> LongJournal:
    disk, tip = Disk(), Tip()
    for time_ms, events in lots:
        batch = law.pack(tip, Epoch(1), events, time_ms)
        disk.batches.append(batch)
        tip = tip_of(batch)
    return LongJournal(SimulatedJournal(disk), SimulatedFiles())


async def audited(lots: list[Lot], policy: Policy, since: int = 1, until: int | None = None) -> Audited:
    done = await audit(journal_of(lots), SimulatedFiles(), policy, since, until)
    assert isinstance(done, Audited), done
    return done


def assignments(lots: list[Lot]) -> list[tuple[int, JobAssigned]]:
    """With their event numbers."""
    events = [event for _, some in lots for event in some]
    return [(number, event) for number, event in enumerate(events, 1) if isinstance(event, JobAssigned)]


@pytest.mark.parametrize("part", range(3))
async def test_every_assignment_of_any_history_is_found_to_be_right(part: int) -> None:
    chance, total = random.Random(f"audit {part}"), 0
    for number in range(counts(8, 300)):
        lots, policy = lived(chance, ("shuffle", "spread", "scored")[number % 3])
        done = await audited(lots, policy)
        assert done.difference is None, done
        assert (done.assignments, done.older) == (len(assignments(lots)), 0)
        total += done.assignments
    assert total > 20


def a_life() -> tuple[list[Lot], Policy]:
    """With enough in it."""
    chance = random.Random(5)
    while True:
        lots, policy = lived(chance)
        if len(assignments(lots)) > 12:
            return lots, policy


def changed(lots: list[Lot], which: int, change: Callable[[JobAssigned], Event | None]) -> list[Lot]:
    """The same history with another `which`-th assignment; None takes it away."""
    target = assignments(lots)[which][1]
    return [
        (ms, [new for event in some if (new := change(target) if event is target else event) is not None])
        for ms, some in lots
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
    lots, policy = a_life()
    number, right = assignments(lots)[which]
    done = await audited(changed(lots, which, forge), policy)
    assert done.difference is not None
    assert (done.difference.event, done.difference.expected, done.difference.found) == (number, right, forge(right))
    assert done.assignments <= which


async def test_an_assignment_that_was_left_out_of_its_tick_is_missed() -> None:
    lots, policy = a_life()
    numbers = [number for number, _ in assignments(lots)]
    which = next(at for at, number in enumerate(numbers) if number + 1 in numbers)
    for gone in (which, which + 1):
        done = await audited(changed(lots, gone, lambda _: None), policy)
        assert done.difference is not None
        assert (done.difference.event, done.difference.expected) == assignments(lots)[gone]


async def test_an_assignment_that_no_tick_gives_is_named() -> None:
    lots, policy = a_life()
    number, right = assignments(lots)[0]
    twice = [
        (ms, [each for event in some for each in ([event] * 2 if event is right else [event])]) for ms, some in lots
    ]
    done = await audited(twice, policy)
    assert done.difference is not None
    assert (done.difference.event, done.difference.found) == (number + 1, right)


class Contrary(Shuffled):
    """A broken matcher: it prefers the last."""

    __slots__ = ()

    def __init__(self, room: takers.Room, seed: object) -> None:
        super().__init__(room, seed)  # type: ignore[arg-type]
        self._seats: Iterator[Seat] = iter(list(room.seats())[::-1])


async def test_a_journal_made_by_a_broken_matcher_is_found_at_its_first_wrong_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(takers.CHOOSERS, MatchOrder.SHUFFLE, Contrary)
        lots, policy = a_life()
    done = await audited(lots, policy)
    assert done.difference is not None
    found, right = done.difference.found, done.difference.expected
    assert isinstance(found, JobAssigned)
    assert isinstance(right, JobAssigned)
    assert found.provider_id != right.provider_id
    assert found.job_id == right.job_id


async def test_an_audit_of_a_part_begins_at_a_snapshot_and_says_where_it_was() -> None:
    lots, policy = a_life()
    events = sum(len(some) for _, some in lots)
    journal, files = journal_of(lots), SimulatedFiles()
    since = assignments(lots)[6][0]
    start = await journal.batch_of(since)  # type: ignore[arg-type]
    assert start is not None
    await snapshot.make(files, journal, policy, until=start - 1)  # type: ignore[arg-type]
    read: list[int] = []
    done = await audit(journal, files, policy, since, None, lambda tip: read.append(tip.number))
    assert isinstance(done, Audited)
    assert (done.first, done.last, done.difference, read[0]) == (since, events, None, start)
    upto = await audited(lots, policy, 1, since - 1)
    assert (upto.last, upto.difference) == (since - 1, None)
    beyond = await audit(journal, files, policy, events + 1)
    assert isinstance(beyond, Refused)


async def test_assignments_from_before_the_rules_were_complete_are_counted_not_judged() -> None:
    ways = (begun(random.Random(seed), "shuffle") for seed in range(100))
    way = next(each for each in ways if not each.state.policy.match.requester_window_ms)
    lots = [(way.now_ms, list(way.events))]
    for nonce in range(5):
        before = len(way.events)
        _enqueue(way, random.Random(nonce))
        way.do(Match())
        some = [msgspec.structs.replace(e, units=0) if isinstance(e, JobAssigned) else e for e in way.events[before:]]
        lots.append((way.now_ms, some))
    done = await audited(lots, way.state.policy)
    assert (done.difference, done.older, done.assignments) == (None, len(assignments(lots)), 0)
    assert done.older > 0


async def test_an_empty_journal_is_right() -> None:
    way = Way()
    done = await audited([], way.state.policy)
    assert (done.difference, done.assignments) == (None, 0)
