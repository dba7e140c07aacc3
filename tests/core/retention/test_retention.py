"""What may be let go (RET-001, RET-002), asked of the state alone: never what is young, never what somebody needs."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.core_driver import CoreDriver
from tests.core.lease.quorums import enqueue_quorum_job, replicas, vote

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import Digest, EventNo, Height, Network
from holdfast.core.policy import Policy, ResultPolicy
from holdfast.core.policy.limits import check_policy
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass, is_dropped
from holdfast.core.retention.decide import retention_watermark
from holdfast.core.retention.messages import (
    ConfirmDeleted,
    DropHot,
    DropWarm,
    EndAudit,
    PageRange,
    Vacuum,
    WarmCandidate,
)
from holdfast.core.retention.model import RECENT_DIGESTS_MAX, SKIPPED_MAX, RecentDigests, Tombstone
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

POLICY = msgspec.structs.replace(
    Policy.for_network(Network.DEVELOPMENT), result=ResultPolicy(max_inline_bytes=64, retain_hot_blocks=20)
)
OUT = b"out"


def with_aged_result(seals: int = 30) -> CoreDriver:
    """One result, resolved in block 2, and blocks above it."""
    core = CoreDriver(State(POLICY))
    core.funded()
    core.provider()
    core.seal()
    job = core.enqueue()
    core.match()
    core.complete(job, OUT)
    core.seal(seals)
    return core


def event_of(core: CoreDriver) -> EventNo:
    return next(iter(core.rows.values())).event


def page_range(
    core: CoreDriver, until: int | None = None, height: int = 2, skipped: tuple[tuple[EventNo, str], ...] = ()
) -> PageRange:
    return PageRange(
        core.state.last_event, Height(height), EventNo(until if until is not None else event_of(core)), skipped
    )


def warm_candidate(core: CoreDriver, **fields: object) -> WarmCandidate:
    return msgspec.structs.replace(WarmCandidate(event_of(core), result_digest(OUT), 3, is_archived=True), **fields)


def refused(core: CoreDriver, command: object) -> Refused:
    before = digest(core.state)
    no = core.ask(command)  # type: ignore[arg-type]
    assert isinstance(no, Refused)
    assert digest(core.state) == before
    return no


@pytest.mark.rule("RET-001")
@pytest.mark.parametrize(("head", "highest"), [(2, 0), (20, 0), (21, 1), (22, 2)])
def test_the_watermark_is_so_many_blocks_below_the_head(head: int, highest: int) -> None:
    assert retention_watermark(with_aged_result(head - 1).state) == highest


@pytest.mark.rule("RET-001")
@pytest.mark.parametrize(("seals", "is_allowed"), [(20, False), (21, True), (22, True)])
def test_a_result_is_a_candidate_from_the_watermark_on(seals: int, is_allowed: bool) -> None:
    core = with_aged_result(seals)
    assert core.state.chain.head.height == seals + 1
    outcome = core.ask(DropHot(page_range(core), 1, 3))
    assert isinstance(outcome, Refused) != is_allowed
    if isinstance(outcome, Refused):
        assert outcome.rule == "RET-001"


@pytest.mark.rule("RET-001", "CHN-005")
def test_a_result_that_a_reorg_can_reach_is_none_whatever_the_policy() -> None:
    core = CoreDriver(State(msgspec.structs.replace(POLICY, result=ResultPolicy(retain_hot_blocks=0))))
    core.funded()
    core.seal(12)
    assert retention_watermark(core.state) == 0  # final is block 0
    core.seal()
    assert retention_watermark(core.state) == 1


@pytest.mark.rule("RET-002")
def test_the_passes_follow_each_other() -> None:
    core = with_aged_result()
    assert refused(core, DropWarm(page_range(core), (warm_candidate(core),))).rule == "RET-002"
    assert refused(core, Vacuum(page_range(core), ())).rule == "RET-002"
    assert refused(core, EndAudit(event_of(core), ())).rule == "RET-002"
    core.do(DropHot(page_range(core), 1, 3))
    core.do(DropWarm(page_range(core), (warm_candidate(core),)))
    stone = Tombstone(event_of(core), next(iter(core.rows)), Height(2), 0)
    assert refused(core, Vacuum(page_range(core), (stone,))).rule == "RET-002"  # its bytes may still be on the disk
    core.do(ConfirmDeleted(Pass.WARM))
    core.state.touched["result"].clear()
    core.do(Vacuum(page_range(core), (stone,)))
    assert core.state.touched["result"] == {stone.event: None}
    assert core.state.touched["tombstone"] == {stone.event: stone}
    core.do(EndAudit(stone.event, (stone.event,)))
    assert core.state.touched["tombstone"] == {stone.event: None}
    assert all(is_dropped(core.state, each, stone.event) for each in Pass if each is not Pass.ORPHANS)


@pytest.mark.rule("RET-002")
def test_bytes_that_are_not_archived_go_only_by_policy() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    assert refused(core, DropWarm(page_range(core), (warm_candidate(core, is_archived=False),))).rule == "RET-002"
    lenient = msgspec.structs.replace(POLICY.result, may_lose_unarchived=True)
    core.state.policy = msgspec.structs.replace(POLICY, result=lenient)
    (event,) = core.do(DropWarm(page_range(core), (warm_candidate(core, is_archived=False),)))
    assert (event.lost, event.lost_bytes) == (1, 3)  # type: ignore[attr-defined]


@pytest.mark.rule("RET-002")
def test_bytes_that_another_result_has_are_not_deleted() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    core.do(DropWarm(page_range(core), (warm_candidate(core, is_shared=True),)))
    assert core.state.warm_deletes_pending == {}


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("is_final", [False, True])
def test_bytes_that_a_result_was_accepted_with_after_the_rows_were_read_are_not_deleted(is_final: bool) -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    old = page_range(core)
    job = core.enqueue(nonce=2)
    core.match()
    core.complete(job, OUT)
    if is_final:
        core.seal(14)
        assert core.state.results == {}
    core.do(DropWarm(old, (warm_candidate(core),)))
    assert core.state.warm_deletes_pending == {}


@pytest.mark.rule("RET-002", "ENG-003")
def test_after_a_start_rows_that_were_read_before_it_delete_nothing() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    old = page_range(core)
    job = core.enqueue(nonce=2)
    core.match()
    core.complete(job, OUT)
    core.seal(14)
    core.state, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    refused = core.ask(DropWarm(old, (warm_candidate(core),)))
    assert isinstance(refused, Refused)
    assert refused.rule == "RET-002"


@pytest.mark.rule("RET-002", "LEA-009")
def test_bytes_that_were_voted_for_stay_until_the_others_have_voted() -> None:
    core = with_aged_result()
    core.provider(2)
    core.do(DropHot(page_range(core), 1, 3))
    job = enqueue_quorum_job(core, 2, 2)
    core.match()
    vote(core, replicas(core, job)[0].id, OUT)
    core.do(DropWarm(page_range(core), (warm_candidate(core),)))
    assert (core.state.warm_deletes_pending, list(core.state.skipped_warm)) == ({}, [event_of(core)])


@pytest.mark.rule("RET-002", "RCV-001")
def test_bytes_that_wait_for_a_verdict_stay_and_are_deleted_once_it_is_negative() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    job = core.enqueue(nonce=2)
    core.match()
    core.submit(job, OUT)
    core.do(DropWarm(page_range(core), (warm_candidate(core),)))
    assert (core.state.warm_deletes_pending, list(core.state.skipped_warm)) == ({}, [event_of(core)])
    core.record_verdict(job, is_good=False)
    core.do(DropWarm(page_range(core), (), (warm_candidate(core),)))
    assert list(core.state.warm_deletes_pending) == [result_digest(OUT)]
    assert core.state.skipped_warm == {}


@pytest.mark.rule("RET-003")
def test_a_pass_position_only_moves_forward_and_the_same_again_is_no_event() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    assert core.do(DropHot(page_range(core), 1, 3)) == ()
    assert refused(core, DropHot(page_range(core, until=event_of(core) - 1), 1, 3)).rule == "RET-003"
    assert core.do(ConfirmDeleted(Pass.HOT)) != ()
    assert core.do(ConfirmDeleted(Pass.HOT)) == ()
    assert core.do(ConfirmDeleted(Pass.WARM)) == ()


@pytest.mark.rule("RET-003")
def test_only_so_many_are_skipped() -> None:
    core = with_aged_result()
    left = tuple((EventNo(number), "lost") for number in range(SKIPPED_MAX + 1))
    assert refused(core, DropHot(page_range(core, skipped=left), 0, 0)).rule == "RET-003"
    core.do(DropHot(page_range(core, skipped=left[1:]), 0, 0))
    assert len(core.state.skipped_hot) == SKIPPED_MAX
    assert refused(core, DropHot(page_range(core), 1, 0, (EventNo(10**9),))).rule == "RET-003"


@pytest.mark.rule("RET-003", "ENG-003")
def test_a_snapshot_keeps_where_the_passes_stand() -> None:
    core = with_aged_result()
    left = ((event_of(core), "the disk does not hold these bytes"),)
    core.do(DropHot(page_range(core, skipped=left), 0, 0))
    core.do(DropHot(page_range(core), 1, 3, (event_of(core),)))
    core.do(DropWarm(page_range(core), (warm_candidate(core),)))
    again, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), POLICY)
    assert digest(again) == digest(core.state)
    assert (again.hot_deletes_pending, again.warm_deletes_pending) == (
        core.state.hot_deletes_pending,
        core.state.warm_deletes_pending,
    )
    assert again.hot_deletes_pending
    assert again.warm_deletes_pending


@pytest.mark.rule("RET-002")
def test_old_digests_are_forgotten_and_complete_after_says_so() -> None:
    recent = RecentDigests()
    for number in range(RECENT_DIGESTS_MAX + 1):
        recent.add(Digest(number.to_bytes(32, "big")), EventNo(number + 1))
    kept = recent.older | recent.newer
    assert (len(kept), recent.complete_after) == (RECENT_DIGESTS_MAX // 2 + 1, RECENT_DIGESTS_MAX // 2)
    assert all(event > recent.complete_after for event in kept.values())
    assert all(recent.event_of(digest) == event for digest, event in kept.items())
    recent.add(digest := next(iter(recent.older)), EventNo(RECENT_DIGESTS_MAX + 2))
    assert recent.event_of(digest) == RECENT_DIGESTS_MAX + 2  # accepted again
    core = with_aged_result()
    core.state.recent_digests.complete_after = EventNo(core.state.last_event + 1)
    assert refused(core, DropHot(page_range(core), 1, 3)).rule == "RET-002"


@pytest.mark.rule("TIER-001", "CHN-005")
@pytest.mark.parametrize(
    ("knobs", "path"),
    [
        ({"retain_hot_blocks": 11}, "chain.finality_depth"),
        ({"audit_window_days": 0, "retain_warm_days": 0, "retain_cold_days": 0}, "result.audit_window_days"),
        ({"retain_cold_days": 6}, "result.retain_warm_days"),
        ({"audit_window_days": 364}, "result.retain_cold_days"),
    ],
)
def test_settings_that_would_delete_what_a_reorg_needs_are_refused(knobs: dict[str, int], path: str) -> None:
    base = Policy.for_network(Network.DEVELOPMENT)
    assert check_policy(base) == []
    told = msgspec.structs.replace(base, result=msgspec.structs.replace(base.result, **knobs))
    assert path in {fault.path for fault in check_policy(told)}
