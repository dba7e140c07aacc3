"""Strays (RET-002), asked of the state alone: only what nobody at all has come to need is condemned."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.core.core_driver import CoreDriver
from tests.core.lease.quorums import enqueue_quorum_job, replicas, vote
from tests.core.retention.test_retention import OUT, event_of, page_range, refused, warm_candidate, with_aged_result

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Event, JournalHead
from holdfast.core.base.values import Digest, EventNo, Height, TaskId
from holdfast.core.policy import Policy
from holdfast.core.policy.limits import check_policy
from holdfast.core.proof.messages import SubmitCompletion
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.messages import ConfirmDeleted, DropHot, DropWarm, PageRange, Vacuum, WarmDropped
from holdfast.core.retention.model import Tombstone, pass_position
from holdfast.core.state_digest import digest
from holdfast.engine.snapshots.state_snapshot import restore, snapshot

ORPHAN = b"never accepted"
ORPHAN_ENTRY = (result_digest(ORPHAN), len(ORPHAN))


def drop_orphans(core: CoreDriver, *orphans: tuple[Digest, int], as_of: EventNo | None = None) -> DropWarm:
    seen = core.state.last_event if as_of is None else as_of
    return DropWarm(
        PageRange(seen, Height(0), pass_position(core.state, Pass.WARM)), orphans=orphans or (ORPHAN_ENTRY,)
    )


@pytest.mark.rule("RET-002", "TIER-001")
def test_bytes_that_nobody_names_are_to_be_deleted_and_counted_and_no_pass_position_moves() -> None:
    core = with_aged_result()
    (event,) = core.do(drop_orphans(core))
    assert isinstance(event, WarmDropped)
    assert (event.orphans, event.orphan_bytes, event.results, event.bytes) == (1, len(ORPHAN), 0, 0)
    assert core.state.warm_deletes_pending == {ORPHAN_ENTRY[0]: 0}
    assert pass_position(core.state, Pass.WARM) == 0
    counted = core.state.retention_progress[Pass.ORPHANS]
    assert (counted.results, counted.bytes) == (1, len(ORPHAN))
    assert core.do(drop_orphans(core)) == ()  # condemned already
    core.do(ConfirmDeleted(Pass.WARM))
    assert core.state.warm_deletes_pending == {}


def submit_orphan(core: CoreDriver, job: TaskId) -> tuple[Event, ...] | Refused:
    lease = core.lease_of(job)
    return core.ask(SubmitCompletion(lease.id, lease.provider_id, core.envelope(job, ORPHAN)))


def waits_for_a_verdict(core: CoreDriver) -> None:
    job = core.enqueue(nonce=2)
    core.match()
    core.submit(job, ORPHAN)


def is_voted_for(core: CoreDriver) -> None:
    core.provider(2)
    job = enqueue_quorum_job(core, 2, 2)
    core.match()
    vote(core, replicas(core, job)[0].id, ORPHAN)


def is_a_result(core: CoreDriver) -> None:
    job = core.enqueue(nonce=2)
    core.match()
    core.complete(job, ORPHAN)


def is_a_final_result(core: CoreDriver) -> None:
    is_a_result(core)
    core.seal(14)
    assert core.state.results == {}


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("becomes", [waits_for_a_verdict, is_voted_for, is_a_result, is_a_final_result])
def test_bytes_that_somebody_came_to_need_after_the_rows_were_read_stay(becomes: Callable[[CoreDriver], None]) -> None:
    core = with_aged_result()
    before = core.state.last_event
    becomes(core)
    assert core.do(drop_orphans(core, as_of=before)) == ()
    other = (result_digest(b"other"), 5)
    core.do(drop_orphans(core, ORPHAN_ENTRY, other, as_of=before))
    assert list(core.state.warm_deletes_pending) == [other[0]]


@pytest.mark.rule("RET-002", "TIER-001")
def test_bytes_of_a_proof_that_was_refused_are_orphans() -> None:
    core = with_aged_result()
    job = core.enqueue(nonce=2)
    core.match()
    core.submit(job, ORPHAN)
    core.record_verdict(job, is_good=False)
    core.do(drop_orphans(core))
    assert list(core.state.warm_deletes_pending) == [ORPHAN_ENTRY[0]]


@pytest.mark.rule("RET-002", "RCV-001")
def test_an_orphan_that_is_submitted_while_its_deletion_is_pending_is_to_be_sent_again() -> None:
    core = with_aged_result()
    job = core.enqueue(nonce=2)
    core.match()
    core.do(drop_orphans(core))
    no = submit_orphan(core, job)
    assert isinstance(no, Refused)
    assert (no.rule, no.hint) == ("RCV-001", "send the output again, then complete")
    core.do(
        ConfirmDeleted(Pass.WARM, (ORPHAN_ENTRY[0],))
    )  # somebody had asked for it just before: the disk has kept it
    assert not isinstance(submit_orphan(core, job), Refused)


@pytest.mark.rule("RET-002", "RET-003")
def test_an_orphan_that_was_spared_is_skipped_for_no_result() -> None:
    core = with_aged_result()
    core.do(DropHot(page_range(core), 1, 3))
    core.do(DropWarm(page_range(core), (warm_candidate(core),)))
    core.do(drop_orphans(core))
    (gone,) = core.do(ConfirmDeleted(Pass.WARM, (ORPHAN_ENTRY[0], result_digest(OUT))))
    assert list(core.state.skipped_warm) == [event_of(core)]
    assert gone.spared == (result_digest(OUT),)  # type: ignore[attr-defined]
    core.do(DropWarm(page_range(core), (), (warm_candidate(core),)))
    core.do(drop_orphans(core))
    core.do(ConfirmDeleted(Pass.WARM, (ORPHAN_ENTRY[0],)))
    assert (core.state.skipped_warm, core.state.warm_deletes_pending) == ({}, {})
    core.do(Vacuum(page_range(core), (Tombstone(event_of(core), next(iter(core.rows)), Height(2), 0),)))


@pytest.mark.rule("RET-002")
def test_rows_that_are_too_old_delete_no_orphan() -> None:
    core = with_aged_result()
    core.state.recent_digests.complete_after = EventNo(core.state.last_event)
    assert refused(core, drop_orphans(core, as_of=EventNo(core.state.last_event - 1))).rule == "RET-002"
    core.do(drop_orphans(core))


@pytest.mark.rule("RET-003", "ENG-003")
def test_a_snapshot_keeps_which_orphans_may_still_have_to_be_deleted() -> None:
    core = with_aged_result()
    core.do(drop_orphans(core))
    again, _ = restore(snapshot(core.state, JournalHead(last=core.state.last_event)), core.state.policy)
    assert digest(again) == digest(core.state)
    assert again.warm_deletes_pending == {ORPHAN_ENTRY[0]: 0}


@pytest.mark.rule("TIER-001")
def test_orphans_are_given_an_hour_at_least() -> None:
    assert Policy().result.orphan_grace_hours == 24
    for hours, is_good in ((0, False), (1, True)):
        told = msgspec.structs.replace(Policy().result, orphan_grace_hours=hours)
        found = check_policy(msgspec.structs.replace(Policy(), result=told))
        assert ("result.orphan_grace_hours" not in {fault.path for fault in found}) is is_good
