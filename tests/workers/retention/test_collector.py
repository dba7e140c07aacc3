"""Retention: bytes are deleted in three passes, once the next tier holds them, and the rest still proves them."""

from __future__ import annotations

import pytest
from tests.core.core_driver import ALICE
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Height
from holdfast.core.chain.messages import RollBackBlocks
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.result import result_digest
from holdfast.core.retention.messages import DropHot, DropWarm, EndAudit, Vacuum
from holdfast.core.retention.model import Pass
from holdfast.core.state_digest import digest
from holdfast.engine import queries
from holdfast.engine.outcome import Accepted
from holdfast.lightclient.da import commitment_of
from holdfast.workers.retention.record_vacuum import NOT_EXPIRED
from holdfast.workers.retention.tier_demoter import NO_ARCHIVE, NOT_ARCHIVED, NOT_ON_DISK, REQUESTED_LATELY

SMALL, OTHER, LARGE = b"small output", b"another one", b"large" * 400


async def retention_node(*, has_archive: bool = True, **knobs: object) -> RetentionNode:
    made = RetentionNode(policy(**knobs), has_archive=has_archive)
    await made.open_with_provider()
    return made


# ------------------------------------------------------------------------------------------------ pass 1


@pytest.mark.rule("TIER-001", "RET-001", "RET-002")
async def test_hot_bytes_leave_the_store_at_the_watermark_and_the_disk_still_has_them() -> None:
    home = await retention_node()
    task = await home.resolve(SMALL, seals=12)
    assert home.hot == {SMALL}
    (report,) = await home.collector.run_passes([Pass.HOT])
    assert (report.dropped, home.hot) == (0, {SMALL})  # height 2, head 13: one block too young
    await home.seal()
    (report,) = await home.collector.run_passes([Pass.HOT])
    assert (report.dropped, report.freed_bytes, report.deleted, report.kept) == (1, len(SMALL), 1, {})
    assert home.hot == set()
    found = await home.record(task)
    assert await queries.hot_output(home.engine, found) is None
    assert await home.bytes_of(task) == SMALL


@pytest.mark.rule("RET-001", "CHN-005")
async def test_what_a_reorg_can_still_reach_is_never_a_candidate() -> None:
    """Even where a policy that should have been refused wants it."""
    home = await retention_node(retain_hot_blocks=0)
    await home.resolve(SMALL, seals=12)
    await home.collector.run_passes([Pass.HOT])
    assert home.hot == {SMALL}  # resolved in block 2, final is block 1
    await home.seal()
    await home.collector.run_passes([Pass.HOT])
    assert home.hot == set()


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("damage", [None, b"small OUTPUT"])
async def test_bytes_that_the_disk_lost_are_restored_from_the_store_before_they_leave_it(damage: bytes | None) -> None:
    home = await retention_node()
    task = await home.resolve(SMALL, seals=13)
    if damage is None:
        del home.blobs.held[result_digest(SMALL)]
    else:
        home.blobs.held[result_digest(SMALL)] = damage
    await home.collector.run_passes([Pass.HOT])
    assert home.hot == set()
    assert await home.bytes_of(task) == SMALL


@pytest.mark.rule("RET-002", "RET-003")
async def test_bytes_that_only_the_store_holds_stay_there_with_the_reason_and_go_later() -> None:
    home = await retention_node()
    task, other = await home.resolve(SMALL), await home.resolve(OTHER, seals=13)
    del home.blobs.held[result_digest(SMALL)]
    keep, home.blobs.receive = home.blobs.receive, _failing  # type: ignore[method-assign, assignment]
    (report,) = await home.collector.run_passes([Pass.HOT])
    assert (report.dropped, report.kept) == (1, {NOT_ON_DISK: 1})
    assert home.hot == {SMALL}
    assert await home.bytes_of(task) == SMALL
    assert await home.bytes_of(other) == OTHER
    (report,) = await home.collector.run_passes([Pass.HOT])
    assert (report.dropped, report.kept) == (0, {NOT_ON_DISK: 1})
    home.blobs.receive = keep  # type: ignore[method-assign]
    (report,) = await home.collector.run_passes([Pass.HOT])
    assert (report.dropped, report.kept, home.hot) == (1, {}, set())
    assert await home.bytes_of(task) == SMALL


async def _failing(*_: object) -> object:
    raise Unavailable("TIER-001", "simulated: the disk is full")


@pytest.mark.rule("RET-002")
async def test_two_results_of_one_batch_with_the_same_bytes_share_a_row_until_both_release_it() -> None:
    home = await retention_node()
    one, two = await home.resolve(SMALL), await home.resolve(SMALL, seals=13)
    await home.collector.run_passes([Pass.HOT])
    assert home.hot == set()
    assert (await home.bytes_of(one), await home.bytes_of(two)) == (SMALL, SMALL)


# ------------------------------------------------------------------------------------------------ pass 2


@pytest.mark.rule("RET-002")
async def test_without_an_archive_nothing_leaves_the_disk_unless_policy_says_so() -> None:
    home = await retention_node(has_archive=False)
    task = await home.resolve(LARGE, seals=13)
    await home.pass_days(2)
    reports = {report.name: report for report in await home.collector.run_passes()}
    assert (reports["warm"].dropped, reports["warm"].kept) == (0, {NO_ARCHIVE: 1})
    assert await home.bytes_of(task) == LARGE

    home = await retention_node(has_archive=False, may_lose_unarchived=True)
    task = await home.resolve(LARGE, seals=13)
    await home.pass_days(2)
    reports = {report.name: report for report in await home.collector.run_passes()}
    assert (reports["warm"].dropped, reports["warm"].lost, reports["warm"].freed_bytes) == (1, 1, len(LARGE))
    assert home.blobs.held == {}
    assert await home.bytes_of(task) is None


@pytest.mark.rule("RET-002")
async def test_the_disk_keeps_bytes_for_its_days_and_until_the_archive_has_them() -> None:
    home = await retention_node()
    task = await home.resolve(LARGE, seals=40)
    (_, report, _) = await home.collector.run_passes()
    assert report.looked == 0  # not a day old
    await home.pass_days(1)
    (_, report, _) = await home.collector.run_passes()
    assert (report.dropped, report.kept) == (0, {NOT_ARCHIVED: 1})
    assert await home.bytes_of(task) == LARGE
    await home.archive_all()
    (_, report, _) = await home.collector.run_passes()
    assert (report.dropped, report.lost, report.deleted) == (1, 0, 1)
    assert home.blobs.held == {}
    assert (await home.record(task)).da_commitment == commitment_of(b"alice", LARGE)


@pytest.mark.rule("RET-002")
@pytest.mark.parametrize("seals", [1, 14])
async def test_shared_bytes_stay_while_any_result_needs_them(seals: int) -> None:
    """One that a reorg can still reach, or one that is final but too young."""
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.pass_days(1)
    young = await home.resolve(LARGE, seals=seals)
    await home.archive_all()
    (_, report, _) = await home.collector.run_passes()
    assert (report.dropped, report.deleted) == (1, 0)
    assert await home.bytes_of(young) == LARGE
    await home.pass_days(1)
    (_, report, _) = await home.collector.run_passes()
    assert (report.dropped, report.deleted) == (1, 1)
    assert home.blobs.held == {}


@pytest.mark.rule("RET-002", "RCV-001")
async def test_bytes_that_are_just_being_submitted_again_stay() -> None:
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    task, lease = await home.leased_job(LARGE)
    await home.engine.submit(home.completion(task, lease, LARGE))
    (_, report, _) = await home.collector.run_passes()
    assert (report.deleted, set(home.blobs.held)) == (0, {result_digest(LARGE)})
    assert home.engine.undurable_state.skipped_warm


@pytest.mark.rule("RET-002", "RCV-001")
async def test_no_completion_relies_on_bytes_that_are_about_to_be_deleted() -> None:
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    task, lease = await home.leased_job(LARGE)
    home.blobs.asked.add(result_digest(LARGE))  # its door has just looked whether they are held
    seen = []

    async def sweep(digests: object) -> list[object]:
        seen.append(await home.engine.submit(home.completion(task, lease, LARGE)))
        return list(home.engine.undurable_state.warm_deletes_pending)

    home.blobs.sweep = sweep  # type: ignore[method-assign, assignment]
    await home.collector.run_passes()
    (outcome,) = seen
    assert isinstance(outcome, Refused)
    assert outcome.rule == "RCV-001"
    assert set(home.blobs.held) == {result_digest(LARGE)}
    assert not home.engine.undurable_state.warm_deletes_pending  # spared: the next one who hands them in is welcome
    assert not isinstance(await home.engine.submit(home.completion(task, lease, LARGE)), Refused)


@pytest.mark.rule("RES-001", "RET-002")
async def test_a_repeated_completion_is_answered_as_the_first_time_while_its_bytes_are_deleted() -> None:
    home = await retention_node()
    task, lease = await home.leased_job(LARGE)
    completion = home.completion(task, lease, LARGE)
    await home.engine.submit(completion)
    pinned = commitment_of(ALICE.encode(), LARGE)
    await home.engine.submit(RecordVerdict(lease.id, True, "", None, da_commitment=pinned))
    home.outputs[task] = LARGE
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(1)
    seen = []

    async def sweep(digests: object) -> list[object]:
        assert home.engine.undurable_state.warm_deletes_pending
        seen.append(await home.engine.submit(completion))
        return []

    home.blobs.sweep = sweep  # type: ignore[method-assign, assignment]
    await home.collector.run_passes()
    (outcome,) = seen
    assert isinstance(outcome, Accepted)
    assert outcome.is_repeat


@pytest.mark.rule("RET-002", "OBS-001")
async def test_bytes_that_were_spared_and_deleted_later_are_counted_once() -> None:
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    home.blobs.asked.add(result_digest(LARGE))
    await home.collector.run_passes()
    assert home.blobs.held
    home.blobs.asked.clear()
    await home.collector.run_passes()
    progress = home.engine.undurable_state.retention_progress[Pass.WARM]
    assert (home.blobs.held, progress.results, progress.bytes) == ({}, 1, len(LARGE))


@pytest.mark.rule("RET-002", "RET-003")
async def test_bytes_that_are_asked_for_again_and_again_make_no_events_and_are_not_reported_as_dropped() -> None:
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    home.blobs.asked.add(result_digest(LARGE))
    await home.collector.run_passes()
    last = home.engine.undurable_state.last_event
    for _ in range(3):
        (_, report, _) = await home.collector.run_passes()
        assert (report.dropped, report.freed_bytes, report.kept) == (0, 0, {REQUESTED_LATELY: 1})
    assert home.engine.undurable_state.last_event == last
    assert home.blobs.held


# ------------------------------------------------------------------------------------------------ pass 3


@pytest.mark.rule("RET-002", "RES-008")
async def test_a_record_becomes_a_tombstone_and_the_leaf_stays() -> None:
    home = await retention_node(audit_window_days=4)
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    full = await home.record(task)
    leaves = dict(home.world.tables.rows["leaf"])
    await home.pass_days(1)
    await home.collector.run_passes()
    assert await home.record(task) == full
    await home.pass_days(1)
    (*_, report) = await home.collector.run_passes()
    await home.engine.wait_tables()
    assert report.dropped == 1
    assert home.world.tables.rows["result"] == {}
    assert list(home.world.tables.rows["tombstone"].values()) == [(full.event, task, 2, 0)]
    assert await home.record(task) == full  # as long as history has the event of its proof
    await home.pass_days(2)
    (*_, report) = await home.collector.run_passes()
    await home.engine.wait_tables()
    assert home.world.tables.rows["tombstone"] == {}
    assert await home.record(task) == full
    assert {place: home.world.tables.rows["leaf"][place] for place in leaves} == leaves


@pytest.mark.rule("RES-003", "RET-002")
async def test_a_record_is_kept_until_its_expires_at_however_many_days_pass() -> None:
    home = await retention_node(result_ttl_blocks=60, may_lose_unarchived=True)
    task = await home.resolve(SMALL, seals=13)
    await home.pass_days(3)
    (*_, report) = await home.collector.run_passes()
    assert (report.dropped, report.kept) == (0, {NOT_EXPIRED: 1})
    await home.seal((await home.record(task)).expires_at - home.engine.undurable_state.chain.head.height - 1)
    (*_, report) = await home.collector.run_passes()
    assert report.dropped == 0
    await home.seal()
    (*_, report) = await home.collector.run_passes()
    assert (report.dropped, report.kept) == (1, {})


@pytest.mark.rule("RET-002")
async def test_a_record_whose_bytes_are_still_here_is_not_vacuumed() -> None:
    home = await retention_node()
    task = await home.resolve(LARGE, seals=13)
    await home.pass_days(3)
    (*_, report) = await home.collector.run_passes()
    assert (report.dropped, report.kept) == (0, {"their bytes are not deleted yet": 1})
    assert (await home.record(task)).caller == "alice"


# ------------------------------------------------------------------------------------------------ bounded, dry, again


@pytest.mark.rule("RET-003")
async def test_a_dry_run_changes_nothing_and_says_what_would_be_done() -> None:
    home = await retention_node()
    for number in range(5):
        await home.resolve(b"%d small" % number)
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(3)
    before = (home.engine.durable_head, digest(home.engine.undurable_state), dict(home.blobs.held), home.hot)
    told = [await home.collector.run_pass(each, is_dry=True) for each in (Pass.HOT, Pass.WARM)]
    assert (home.engine.durable_head, digest(home.engine.undurable_state), dict(home.blobs.held), home.hot) == before
    assert [(each.dropped, each.freed_bytes, each.deleted) for each in told] == [(6, 35, 0), (6, 35 + len(LARGE), 0)]
    done = await home.collector.run_passes([Pass.HOT, Pass.WARM])
    assert [(each.dropped, each.freed_bytes) for each in done] == [(6, 35), (6, 35 + len(LARGE))]


@pytest.mark.rule("RET-003")
async def test_a_second_run_finds_nothing_to_do_and_writes_nothing() -> None:
    home = await retention_node(audit_window_days=2)
    for number in range(5):
        await home.resolve(b"%d small" % number)
    await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(3)
    await home.collector.run_passes()
    before = (home.engine.durable_head, digest(home.engine.undurable_state))
    reports = await home.collector.run_passes()
    assert (home.engine.durable_head, digest(home.engine.undurable_state)) == before
    assert [(each.dropped, each.deleted, each.is_done) for each in reports] == [(0, 0, True)] * 3


@pytest.mark.rule("RET-003")
@pytest.mark.parametrize(
    ("knobs", "dropped"), [({"gc_rows_max": 3}, 3), ({"gc_bytes_max": 20}, 3), ({"gc_bytes_max": 1}, 1)]
)
async def test_a_run_ends_at_its_limits_and_the_next_one_goes_on(knobs: dict[str, int], dropped: int) -> None:
    home = await retention_node(**knobs)  # type: ignore[arg-type]
    for number in range(8):
        await home.resolve(b"%d small" % number)
    await home.seal(13)
    report = await home.collector.run_pass(Pass.HOT)
    assert (report.is_done, report.dropped, len(home.hot)) == (False, dropped, 8 - dropped)
    await home.collector.run_passes([Pass.HOT])
    assert home.hot == set()


@pytest.mark.rule("RET-003")
async def test_where_nothing_is_kept_hot_no_rows_are_read_to_count_it(monkeypatch: pytest.MonkeyPatch) -> None:
    home = await retention_node(max_inline_bytes=0)
    await home.resolve(LARGE, seals=1)
    await home.engine.wait_tables()

    async def fail(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(home.engine.tables, "page", fail)
    await home.collector.measure()
    assert home.collector.bytes_hot == 0


@pytest.mark.rule("RET-003")
async def test_ending_audits_is_bounded_in_rows_too() -> None:
    home = await retention_node(audit_window_days=2, gc_rows_max=3)
    for number in range(8):
        await home.resolve(b"%d small" % number)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(3)
    await home.collector.run_passes([Pass.HOT, Pass.WARM])
    reports = await home.collector.run_passes([Pass.RECORDS])
    assert [(each.dropped, each.deleted) for each in reports] == [(3, 0), (3, 0), (2, 1), (0, 3), (0, 3), (0, 1)]
    assert home.engine.undurable_state.retention_progress[Pass.AUDIT].results == 8


@pytest.mark.rule("RET-003")
async def test_a_pass_that_is_refused_says_why_and_how_much_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    home = await retention_node()
    for number in range(3):
        await home.resolve(b"%d small" % number)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(3)
    submit = home.engine.submit

    async def refuse(command: object) -> object:
        if isinstance(command, DropHot | DropWarm | Vacuum | EndAudit):
            return Refused("RET-003", "simulated: not now")
        return await submit(command)  # type: ignore[arg-type]

    for pass_ in (Pass.HOT, Pass.WARM, Pass.RECORDS):
        with monkeypatch.context() as patched:
            patched.setattr(home.engine, "submit", refuse)
            report = await home.collector.run_pass(pass_)
            assert (report.dropped, report.kept) == (0, {"simulated: not now": 3})
        assert (await home.collector.run_pass(pass_)).dropped == 3


@pytest.mark.rule("RET-003")
async def test_many_that_must_stay_do_not_block_those_skipped_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.workers.retention.tier_demoter.RETRY_MAX", 2)
    home = await retention_node()
    tasks = [await home.resolve(b"%d small" % number) for number in range(5)]
    await home.seal(13)
    await home.pass_days(3)
    await home.collector.run_passes([Pass.HOT, Pass.WARM])
    assert len(home.engine.undurable_state.skipped_warm) == 5
    assert home.archive is not None
    home.archive.held.add(result_digest(home.outputs[tasks[4]]))  # the archive has the last one by now
    for _ in range(3):
        await home.collector.run_passes([Pass.WARM])
    assert len(home.engine.undurable_state.skipped_warm) == 4
    assert await home.bytes_of(tasks[4]) is None


@pytest.mark.rule("RET-003")
async def test_a_run_ends_when_its_time_is_over_and_rests_as_long_as_it_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.workers.retention.candidates.PAGE", 2)
    home = await retention_node(gc_ms_max=50)
    for number in range(8):
        await home.resolve(b"%d small" % number)
    await home.seal(13)
    sound = home.blobs.verify

    async def slow(digests: object) -> object:
        home.clock.monotonic += 60
        return await sound(digests)  # type: ignore[arg-type]

    home.blobs.verify = slow  # type: ignore[method-assign, assignment]
    home.clock.slept.clear()
    reports = await home.collector.run_passes([Pass.HOT])
    assert [(each.dropped, each.ms, each.is_done) for each in reports] == [(2, 60, False)] * 4 + [(0, 0, True)]
    assert home.clock.slept == [60] * 4


@pytest.mark.rule("RET-003", "ENG-003")
async def test_the_fold_of_the_journal_is_the_state_after_all_passes() -> None:
    home = await retention_node(audit_window_days=2)
    for output in (SMALL, OTHER, LARGE, LARGE):
        await home.resolve(output)
    await home.seal(13)
    await home.archive_all()
    await home.pass_days(3)
    await home.collector.run_passes()
    assert home.engine.undurable_state.retention_progress[Pass.AUDIT].results == 4
    assert digest(await home.world.recovered()) == digest(home.engine.undurable_state)


# ------------------------------------------------------------------------------------------------ reorgs


@pytest.mark.rule("RET-001", "RES-006")
async def test_a_reorg_between_two_runs_changes_nothing_that_was_deleted_and_deletes_nothing_young() -> None:
    home = await retention_node()
    old = await home.resolve(SMALL, seals=13)
    young = await home.resolve(OTHER, seals=2)
    await home.collector.run_passes()
    head = home.engine.undurable_state.chain.head.height
    assert not isinstance(await home.engine.submit(RollBackBlocks(Height(head - 5))), Refused)
    await home.collector.run_passes()
    assert home.hot == {OTHER}
    await home.seal(3)
    assert await home.bytes_of(old) == SMALL
    assert await home.bytes_of(young) == OTHER
    await home.seal(20)
    await home.collector.run_passes()
    assert home.hot == set()
    assert await home.bytes_of(young) == OTHER
    assert digest(await home.world.recovered()) == digest(home.engine.undurable_state)
