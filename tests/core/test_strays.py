"""Strays (RET-002), asked of the state alone: only what nobody at all has come to need is condemned."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.core.quorums import asked, replicas, vote
from tests.core.test_retention import OUT, aged, event_of, held, lot, refused
from tests.core.ways import Way

from holdfast.core.event import Event, Tip
from holdfast.core.policy import Policy, faults
from holdfast.core.proof.acts import Submit
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.acts import DropHot, DropWarm, Lot, Sweep, Vacuum, WarmDropped
from holdfast.core.retention.books import Tombstone, until
from holdfast.core.state import digest, restore, snapshot
from holdfast.core.values import Digest, EventNo, Height, TaskId

STRAY = b"never accepted"
TOLD = (result_digest(STRAY), len(STRAY))


def dropping(way: Way, *strays: tuple[Digest, int], as_of: EventNo | None = None) -> DropWarm:
    seen = way.state.last_event if as_of is None else as_of
    return DropWarm(Lot(seen, Height(0), until(way.state, Pass.WARM)), strays=strays or (TOLD,))


@pytest.mark.rule("RET-002", "TIER-001")
def test_bytes_that_nobody_names_are_condemned_and_counted_and_no_mark_moves() -> None:
    way = aged()
    (event,) = way.do(dropping(way))
    assert isinstance(event, WarmDropped)
    assert (event.strays, event.stray_bytes, event.results, event.bytes) == (1, len(STRAY), 0, 0)
    assert way.state.condemned == {TOLD[0]: 0}
    assert until(way.state, Pass.WARM) == 0
    counted = way.state.passes[Pass.STRAY]
    assert (counted.results, counted.bytes) == (1, len(STRAY))
    assert way.do(dropping(way)) == ()  # condemned already
    way.do(Sweep(Pass.WARM))
    assert way.state.condemned == {}


def handed_in(way: Way, job: TaskId) -> tuple[Event, ...] | Refused:
    lease = way.lease_of(job)
    return way.ask(Submit(lease.id, lease.provider_id, way.envelope(job, STRAY)))


def waits_for_a_verdict(way: Way) -> None:
    job = way.enqueue(nonce=2)
    way.match()
    way.submit(job, STRAY)


def is_voted_for(way: Way) -> None:
    way.provider(2)
    job = asked(way, 2, 2)
    way.match()
    vote(way, replicas(way, job)[0].id, STRAY)


def is_a_result(way: Way) -> None:
    job = way.enqueue(nonce=2)
    way.match()
    way.complete(job, STRAY)


def is_a_final_result(way: Way) -> None:
    is_a_result(way)
    way.seal(14)
    assert way.state.results == {}


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("becomes", [waits_for_a_verdict, is_voted_for, is_a_result, is_a_final_result])
def test_bytes_that_somebody_came_to_need_after_the_rows_were_read_stay(becomes: Callable[[Way], None]) -> None:
    way = aged()
    before = way.state.last_event
    becomes(way)
    assert way.do(dropping(way, as_of=before)) == ()
    other = (result_digest(b"other"), 5)
    way.do(dropping(way, TOLD, other, as_of=before))
    assert list(way.state.condemned) == [other[0]]


@pytest.mark.rule("RET-002", "TIER-001")
def test_bytes_of_a_proof_that_was_refused_are_strays() -> None:
    way = aged()
    job = way.enqueue(nonce=2)
    way.match()
    way.submit(job, STRAY)
    way.judge(job, is_good=False)
    way.do(dropping(way))
    assert list(way.state.condemned) == [TOLD[0]]


@pytest.mark.rule("RET-002", "RCV-001")
def test_a_stray_that_is_handed_in_while_it_is_condemned_is_to_be_sent_again() -> None:
    way = aged()
    job = way.enqueue(nonce=2)
    way.match()
    way.do(dropping(way))
    no = handed_in(way, job)
    assert isinstance(no, Refused)
    assert (no.rule, no.hint) == ("RCV-001", "send the output again, then complete")
    way.do(Sweep(Pass.WARM, (TOLD[0],)))  # somebody had asked for it just before: the disk has kept it
    assert not isinstance(handed_in(way, job), Refused)


@pytest.mark.rule("RET-002", "RET-003")
def test_a_stray_that_was_spared_is_left_behind_for_no_result() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    way.do(DropWarm(lot(way), (held(way),)))
    way.do(dropping(way))
    (gone,) = way.do(Sweep(Pass.WARM, (TOLD[0], result_digest(OUT))))
    assert list(way.state.kept_warm) == [event_of(way)]
    assert gone.spared == (result_digest(OUT),)  # type: ignore[attr-defined]
    way.do(DropWarm(lot(way), (), (held(way),)))
    way.do(dropping(way))
    way.do(Sweep(Pass.WARM, (TOLD[0],)))
    assert (way.state.kept_warm, way.state.condemned) == ({}, {})
    way.do(Vacuum(lot(way), (Tombstone(event_of(way), next(iter(way.rows)), Height(2), 0),)))


@pytest.mark.rule("RET-002")
def test_rows_that_are_too_old_condemn_no_stray() -> None:
    way = aged()
    way.state.recent.floor = EventNo(way.state.last_event)
    assert refused(way, dropping(way, as_of=EventNo(way.state.last_event - 1))).rule == "RET-002"
    way.do(dropping(way))


@pytest.mark.rule("RET-003", "ENG-003")
def test_a_snapshot_keeps_which_strays_may_still_have_to_be_deleted() -> None:
    way = aged()
    way.do(dropping(way))
    again, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    assert digest(again) == digest(way.state)
    assert again.condemned == {TOLD[0]: 0}


@pytest.mark.rule("TIER-001")
def test_strays_are_given_an_hour_at_least() -> None:
    assert Policy().result.stray_hours == 24
    for hours, is_good in ((0, False), (1, True)):
        told = msgspec.structs.replace(Policy().result, stray_hours=hours)
        found = faults(msgspec.structs.replace(Policy(), result=told))
        assert ("result.stray_hours" not in {fault.path for fault in found}) is is_good
