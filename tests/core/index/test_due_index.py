"""What comes due when: found in time, and no larger than what waits, however much comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.index.due_index import STALE_ENTRIES_MAX, DueIndex


@pytest.mark.rule("TTL-001")
def test_what_comes_and_goes_behind_one_that_stays_leaves_no_trace() -> None:
    agenda = DueIndex()
    agenda.schedule(b"stays", 1_000)
    for number in range(10_000):
        at_ms = 90_000_000 + number % 7 * 1_000
        agenda.schedule(b"goes", at_ms)
        agenda.remove(b"goes", at_ms)
    assert len(agenda.heap) <= 2 * (len(agenda.buckets) + 1) + STALE_ENTRIES_MAX
    assert (list(agenda.due_until(10**9)), agenda.earliest()) == ([b"stays"], 1_000)


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 400)), max_size=400)


@pytest.mark.rule("LEA-005")
@given(steps, st.integers(0, 400))
def test_it_finds_what_is_due_whatever_came_and_went_before(changes: list[tuple[bool, int, int]], now: int) -> None:
    agenda, waiting = DueIndex(bucket_width=1), set[tuple[bytes, int]]()
    for is_put, id_, at in changes:
        entry = (bytes([id_]), at)
        (agenda.schedule if is_put else agenda.remove)(*entry)
        (waiting.add if is_put else waiting.discard)(entry)
    due = sorted((at, id_) for id_, at in waiting if at <= now)
    assert sorted(agenda.due_until(now)) == sorted(id_ for _, id_ in due)
    assert agenda.earliest() == min((at for _, at in waiting), default=None)


@pytest.mark.rule("TTL-001", "ENG-003")
@given(st.lists(st.tuples(st.binary(max_size=2), st.integers(0, 9_999))), st.integers(0, 9_999))
def test_filled_at_once_it_is_the_same_as_one_by_one(due: list[tuple[bytes, int]], now: int) -> None:
    at_once, one_by_one = DueIndex(), DueIndex()
    at_once.schedule_many(due)
    for each in due:
        one_by_one.schedule(*each)
    assert (at_once.buckets, at_once.earliest()) == (one_by_one.buckets, one_by_one.earliest())
    assert list(at_once.due_until(now)) == list(one_by_one.due_until(now))
