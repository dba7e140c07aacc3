"""Random lives of schedules, with crashes, outages and policy: each due time gives one job at most (JOB-014)."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.core_driver import ALICE
from tests.core.fleet import lenient_policy
from tests.core.journaled_core import JournaledCore
from tests.counts import counts

from holdfast.core import journal_codec
from holdfast.core.base.canonical import canonical
from holdfast.core.base.event import Event
from holdfast.core.base.values import AccountId, Tier
from holdfast.core.invariants import broken_invariants
from holdfast.core.policy import SchedulePolicy
from holdfast.core.queue.messages import JobAdmitted
from holdfast.core.schedule.messages import (
    CreateSchedule,
    FireSchedule,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    ScheduleFired,
    ScheduleRefused,
)

MINUTE_MS = 60_000
PAYLOAD = canonical({"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}})
POLICY = lenient_policy(schedule=SchedulePolicy(per_caller_max=2, refusals_in_row_max=2))
names, callers = st.sampled_from(["a", "b", "c"]), st.sampled_from([ALICE, AccountId("poor")])
rhythms = st.sampled_from([("", MINUTE_MS), ("", 7 * MINUTE_MS), ("*/5 * * * *", 0), ("0 0 1 1 *", 0)])
steps = st.one_of(
    st.tuples(
        st.just("create"), callers, names, rhythms, st.none() | st.integers(1, 2), st.none() | st.integers(5, 90)
    ),
    st.tuples(st.sampled_from(["pause", "resume", "remove"]), st.integers(0, 3)),
    st.tuples(st.just("fire"), st.booleans()),
    st.tuples(st.just("fire"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 30 * MINUTE_MS)),
    st.tuples(st.just("crash"), st.integers(0, 600 * MINUTE_MS), st.booleans()),
)
CHANGES = {"pause": PauseSchedule, "resume": ResumeSchedule, "remove": RemoveSchedule}


class ScheduleLife:
    """A journal, and every firing that was ever asked for: an old one is repeated now and then."""

    def __init__(self) -> None:
        self.core = JournaledCore(POLICY)
        self.asked: list[FireSchedule] = []

    def take(self, step: tuple[object, ...]) -> None:
        getattr(self, f"_{step[0]}" if step[0] not in CHANGES else "_change")(*step)
        assert broken_invariants(self.core.state) == []

    def _create(
        self, _: str, caller: AccountId, name: str, rhythm: tuple[str, int], runs: int | None, until: int | None
    ) -> None:
        until_ms = None if until is None else self.core.now_ms + until * MINUTE_MS
        terms = CreateSchedule(caller, name, Tier.FREE, PAYLOAD, 200, *rhythm, runs=runs, until_ms=until_ms)
        self.core.ask(terms)

    def _change(self, kind: str, place: int) -> None:
        ids = list(self.core.state.schedules.by_id)
        if place < len(ids):
            self.core.ask(CHANGES[kind](ids[place]))

    def _fire(self, _: str, is_again: bool) -> None:
        for schedule in list(self.core.state.schedules.due_until(self.core.now_ms)):
            self.asked.append(FireSchedule(schedule.id, schedule.next_ms))
            self.core.do(self.asked[-1])
        for command in self.asked if is_again else ():
            assert self.core.ask(command) == ()

    def _wait(self, _: str, by_ms: int) -> None:
        self.core.now_ms += by_ms

    def _crash(self, _: str, outage_ms: int, from_snapshot: bool) -> None:
        self.core.store()
        self.core.crash(outage_ms, from_snapshot=from_snapshot)

    def events(self) -> list[list[Event]]:
        return [journal_codec.unpack(batch) for batch in self.core.batches]


@pytest.mark.rule("JOB-014", "ENG-003")
@settings(max_examples=counts(25, 600))
@given(st.lists(steps, max_size=30))
def test_each_due_time_fires_once_at_most_and_its_job_is_in_the_same_batch(history: list[tuple[object, ...]]) -> None:
    life = ScheduleLife()
    for step in history:
        life.take(step)
    fired = Counter[tuple[bytes, int]]()
    for batch in life.events():
        firings = [event for event in batch if isinstance(event, ScheduleFired | ScheduleRefused)]
        fired.update((event.id, event.due_ms) for event in firings)
        promised = [event.task_id for event in firings if isinstance(event, ScheduleFired)]
        assert promised == [event.id for event in batch if isinstance(event, JobAdmitted)]
    assert not [due for due, times in fired.items() if times > 1]
    life.core.close()
    assert msgspec.msgpack.encode(life.core.state.schedules.by_id)
