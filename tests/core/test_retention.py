"""What may be let go (RET-001, RET-002), asked of the state alone: never what is young, never what somebody needs."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.quorums import asked, replicas, vote
from tests.core.ways import Way

from holdfast.core.event import Tip
from holdfast.core.policy import Policy, ResultPolicy, faults
from holdfast.core.refusal import Refused
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass, is_dropped
from holdfast.core.retention.acts import DropHot, DropWarm, EndAudit, Held, Lot, Sweep, Vacuum
from holdfast.core.retention.books import KEPT_MAX, RECENT_MAX, Recent, Tombstone
from holdfast.core.retention.decide import watermark
from holdfast.core.state import State, digest, restore, snapshot
from holdfast.core.values import Digest, EventNo, Height, Network

POLICY = msgspec.structs.replace(
    Policy.for_network(Network.DEVELOPMENT), result=ResultPolicy(max_inline_bytes=64, retain_hot_blocks=20)
)
OUT = b"out"


def aged(seals: int = 30) -> Way:
    """One result, resolved in block 2, and blocks above it."""
    way = Way(State(POLICY))
    way.funded()
    way.provider()
    way.seal()
    job = way.enqueue()
    way.match()
    way.complete(job, OUT)
    way.seal(seals)
    return way


def event_of(way: Way) -> EventNo:
    return next(iter(way.rows.values())).event


def lot(way: Way, until: int | None = None, height: int = 2, left: tuple[tuple[EventNo, str], ...] = ()) -> Lot:
    return Lot(way.state.last_event, Height(height), EventNo(until if until is not None else event_of(way)), left)


def held(way: Way, **told: object) -> Held:
    return msgspec.structs.replace(Held(event_of(way), result_digest(OUT), 3, is_archived=True), **told)


def refused(way: Way, command: object) -> Refused:
    before = digest(way.state)
    no = way.ask(command)  # type: ignore[arg-type]
    assert isinstance(no, Refused)
    assert digest(way.state) == before
    return no


@pytest.mark.rule("RET-001")
@pytest.mark.parametrize(("head", "highest"), [(2, 0), (20, 0), (21, 1), (22, 2)])
def test_the_watermark_is_so_many_blocks_below_the_head(head: int, highest: int) -> None:
    assert watermark(aged(head - 1).state) == highest


@pytest.mark.rule("RET-001")
@pytest.mark.parametrize(("seals", "is_allowed"), [(20, False), (21, True), (22, True)])
def test_a_result_is_a_candidate_from_the_watermark_on(seals: int, is_allowed: bool) -> None:
    way = aged(seals)
    assert way.state.chain.head.height == seals + 1
    outcome = way.ask(DropHot(lot(way), 1, 3))
    assert isinstance(outcome, Refused) != is_allowed
    if isinstance(outcome, Refused):
        assert outcome.rule == "RET-001"


@pytest.mark.rule("RET-001", "CHN-005")
def test_a_result_that_a_reorg_can_reach_is_none_whatever_the_policy() -> None:
    way = Way(State(msgspec.structs.replace(POLICY, result=ResultPolicy(retain_hot_blocks=0))))
    way.funded()
    way.seal(12)
    assert watermark(way.state) == 0  # final is block 0
    way.seal()
    assert watermark(way.state) == 1


@pytest.mark.rule("RET-002")
def test_the_passes_follow_each_other() -> None:
    way = aged()
    assert refused(way, DropWarm(lot(way), (held(way),))).rule == "RET-002"
    assert refused(way, Vacuum(lot(way), ())).rule == "RET-002"
    assert refused(way, EndAudit(event_of(way), ())).rule == "RET-002"
    way.do(DropHot(lot(way), 1, 3))
    way.do(DropWarm(lot(way), (held(way),)))
    stone = Tombstone(event_of(way), next(iter(way.rows)), Height(2), 0)
    assert refused(way, Vacuum(lot(way), (stone,))).rule == "RET-002"  # its bytes may still be on the disk
    way.do(Sweep(Pass.WARM))
    way.state.touched["result"].clear()
    way.do(Vacuum(lot(way), (stone,)))
    assert way.state.touched["result"] == {stone.event: None}
    assert way.state.touched["tombstone"] == {stone.event: stone}
    way.do(EndAudit(stone.event, (stone.event,)))
    assert way.state.touched["tombstone"] == {stone.event: None}
    assert all(is_dropped(way.state, each, stone.event) for each in Pass if each is not Pass.STRAY)


@pytest.mark.rule("RET-002")
def test_bytes_that_are_not_archived_go_only_by_policy() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    assert refused(way, DropWarm(lot(way), (held(way, is_archived=False),))).rule == "RET-002"
    lenient = msgspec.structs.replace(POLICY.result, may_lose_unarchived=True)
    way.state.policy = msgspec.structs.replace(POLICY, result=lenient)
    (event,) = way.do(DropWarm(lot(way), (held(way, is_archived=False),)))
    assert (event.lost, event.lost_bytes) == (1, 3)  # type: ignore[attr-defined]


@pytest.mark.rule("RET-002")
def test_bytes_that_another_result_has_are_not_condemned() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    way.do(DropWarm(lot(way), (held(way, is_shared=True),)))
    assert way.state.condemned == {}


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("is_final", [False, True])
def test_bytes_that_a_result_was_accepted_with_after_the_rows_were_read_are_not_condemned(is_final: bool) -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    old = lot(way)
    job = way.enqueue(nonce=2)
    way.match()
    way.complete(job, OUT)
    if is_final:
        way.seal(14)
        assert way.state.results == {}
    way.do(DropWarm(old, (held(way),)))
    assert way.state.condemned == {}


@pytest.mark.rule("RET-002", "ENG-003")
def test_after_a_start_rows_that_were_read_before_it_condemn_nothing() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    old = lot(way)
    job = way.enqueue(nonce=2)
    way.match()
    way.complete(job, OUT)
    way.seal(14)
    way.state, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), way.state.policy)
    refused = way.ask(DropWarm(old, (held(way),)))
    assert isinstance(refused, Refused)
    assert refused.rule == "RET-002"


@pytest.mark.rule("RET-002", "LEA-009")
def test_bytes_that_were_voted_for_stay_until_the_others_have_voted() -> None:
    way = aged()
    way.provider(2)
    way.do(DropHot(lot(way), 1, 3))
    job = asked(way, 2, 2)
    way.match()
    vote(way, replicas(way, job)[0].id, OUT)
    way.do(DropWarm(lot(way), (held(way),)))
    assert (way.state.condemned, list(way.state.kept_warm)) == ({}, [event_of(way)])


@pytest.mark.rule("RET-002", "RCV-001")
def test_bytes_that_wait_for_a_verdict_stay_and_condemned_ones_are_not_held() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    job = way.enqueue(nonce=2)
    way.match()
    way.submit(job, OUT)
    way.do(DropWarm(lot(way), (held(way),)))
    assert (way.state.condemned, list(way.state.kept_warm)) == ({}, [event_of(way)])
    way.judge(job, is_good=False)
    way.do(DropWarm(lot(way), (), (held(way),)))
    assert list(way.state.condemned) == [result_digest(OUT)]
    assert way.state.kept_warm == {}


@pytest.mark.rule("RET-003")
def test_a_mark_only_moves_forward_and_the_same_again_is_no_event() -> None:
    way = aged()
    way.do(DropHot(lot(way), 1, 3))
    assert way.do(DropHot(lot(way), 1, 3)) == ()
    assert refused(way, DropHot(lot(way, until=event_of(way) - 1), 1, 3)).rule == "RET-003"
    assert way.do(Sweep(Pass.HOT)) != ()
    assert way.do(Sweep(Pass.HOT)) == ()
    assert way.do(Sweep(Pass.WARM)) == ()


@pytest.mark.rule("RET-003")
def test_only_so_many_are_left_behind() -> None:
    way = aged()
    left = tuple((EventNo(number), "lost") for number in range(KEPT_MAX + 1))
    assert refused(way, DropHot(lot(way, left=left), 0, 0)).rule == "RET-003"
    way.do(DropHot(lot(way, left=left[1:]), 0, 0))
    assert len(way.state.kept_hot) == KEPT_MAX
    assert refused(way, DropHot(lot(way), 1, 0, (EventNo(10**9),))).rule == "RET-003"


@pytest.mark.rule("RET-003", "ENG-003")
def test_a_snapshot_keeps_where_the_passes_stand() -> None:
    way = aged()
    left = ((event_of(way), "the disk does not hold these bytes"),)
    way.do(DropHot(lot(way, left=left), 0, 0))
    way.do(DropHot(lot(way), 1, 3, (event_of(way),)))
    way.do(DropWarm(lot(way), (held(way),)))
    again, _ = restore(snapshot(way.state, Tip(last=way.state.last_event)), POLICY)
    assert digest(again) == digest(way.state)
    assert (again.leaving, again.condemned) == (way.state.leaving, way.state.condemned)
    assert again.leaving
    assert again.condemned


@pytest.mark.rule("RET-002")
def test_old_digests_are_forgotten_and_the_floor_says_so() -> None:
    recent = Recent()
    for number in range(RECENT_MAX + 1):
        recent.note(Digest(number.to_bytes(32, "big")), EventNo(number + 1))
    assert (len(recent.events), recent.floor) == (RECENT_MAX // 2 + 1, RECENT_MAX // 2)
    assert all(event > recent.floor for event in recent.events.values())
    way = aged()
    way.state.recent.floor = EventNo(way.state.last_event + 1)
    assert refused(way, DropHot(lot(way), 1, 3)).rule == "RET-002"


@pytest.mark.rule("TIER-001", "CHN-005")
@pytest.mark.parametrize(
    ("knobs", "path"),
    [
        ({"retain_hot_blocks": 11}, "chain.finality_depth"),
        ({"retain_warm_days": 0}, "result.retain_warm_days"),
        ({"audit_window_days": 0, "retain_warm_days": 0, "retain_cold_days": 0}, "result.audit_window_days"),
        ({"retain_cold_days": 6}, "result.retain_warm_days"),
        ({"audit_window_days": 364}, "result.retain_cold_days"),
    ],
)
def test_knobs_that_would_delete_what_a_reorg_needs_are_refused(knobs: dict[str, int], path: str) -> None:
    base = Policy.for_network(Network.DEVELOPMENT)
    assert faults(base) == []
    told = msgspec.structs.replace(base, result=msgspec.structs.replace(base.result, **knobs))
    assert path in {fault.path for fault in faults(told)}
