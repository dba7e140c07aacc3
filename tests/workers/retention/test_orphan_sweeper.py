"""Orphans on the disk (RET-002): uploads that were never accepted are deleted, all other files stay."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from tests.workers.retention.retention_node import RetentionNode, policy

from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.policy import HOUR_MS
from holdfast.core.proof.messages import RecordVerdict
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.decide import SUBMITTED_MEANWHILE
from holdfast.core.state_digest import digest
from holdfast.engine.retention_report import RetentionReport
from holdfast.ports import SCAN_END
from holdfast.workers.retention.collector import ORPHAN_SCAN_MS, Collector
from holdfast.workers.retention.orphan_sweeper import REFERENCED_BY_RESULT
from holdfast.workers.supervisor import run_periodically

LARGE = b"large" * 300
ORPHANS = [b"orphan %d" % number * 10 for number in range(6)]
SIZE = len(ORPHANS[0])


async def retention_node(**knobs: object) -> RetentionNode:
    home = RetentionNode(policy(**knobs))
    await home.open_with_provider()
    home.world.disk.before_append = home.world.disk.before_delete_payloads = home.fuse
    return home


def leave_files(home: RetentionNode, *raws: bytes) -> None:
    home.blobs.held.update({result_digest(raw): raw for raw in raws})


async def sweep_all(home: RetentionNode) -> RetentionReport:
    """A whole round, as one report."""
    total = RetentionReport("orphans")
    for each in await home.collector.run_passes([Pass.ORPHANS]):
        total.looked, total.dropped = total.looked + each.looked, total.dropped + each.dropped
        total.freed_bytes, total.deleted = total.freed_bytes + each.freed_bytes, total.deleted + each.deleted
        for why, count in each.kept.items():
            total.count_kept(why, count)
    return total


@pytest.mark.rule("RET-002", "TIER-001")
async def test_a_file_without_a_result_is_deleted_and_what_a_result_needs_stays() -> None:
    home = await retention_node()
    old = await home.resolve(LARGE, seals=13)
    young = await home.resolve(b"young" * 300)
    leave_files(home, *ORPHANS)
    await home.pass_days(1)
    unlinked = await home.resolve(b"not even sealed" * 300)
    found = await sweep_all(home)
    assert (found.looked, found.dropped, found.freed_bytes, found.deleted) == (9, 6, 6 * SIZE, 6)
    assert found.kept == {REFERENCED_BY_RESULT: 3}
    assert set(home.blobs.held.values()) == {home.outputs[each] for each in (old, young, unlinked)}
    assert home.engine.undurable_state.warm_deletes_pending == {}
    before = home.engine.durable_head
    assert (await sweep_all(home)).dropped == 0
    assert home.engine.durable_head == before
    assert digest(await home.world.recovered()) == digest(home.engine.undurable_state)


@pytest.mark.rule("RET-002", "TIER-001")
@pytest.mark.parametrize(
    ("hours", "age_ms", "is_swept"), [(24, -1, False), (24, 0, True), (24, 1, True), (48, 0, False)]
)
async def test_a_file_is_no_orphan_before_its_hours_are_over(hours: int, age_ms: int, is_swept: bool) -> None:
    home = await retention_node(orphan_grace_hours=hours)
    await home.pass_days(3)
    leave_files(home, ORPHANS[0])
    home.blobs.since[result_digest(ORPHANS[0])] = home.engine.now_ms() - 24 * HOUR_MS - age_ms
    assert (await sweep_all(home)).deleted == is_swept
    assert (home.blobs.held == {}) is is_swept


@pytest.mark.rule("RET-002")
async def test_bytes_that_were_sent_again_after_their_result_released_them_are_orphans() -> None:
    home = await retention_node()
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    assert (await sweep_all(home)).dropped == 0
    await home.collector.run_passes()
    assert home.blobs.held == {}
    leave_files(home, LARGE)
    assert (await sweep_all(home)).deleted == 1
    assert home.blobs.held == {}
    assert (await home.record(task)).result_digest == result_digest(LARGE)


@pytest.mark.rule("RET-002")
async def test_bytes_that_the_disk_keeps_for_a_result_that_was_left_behind_are_none() -> None:
    home = await retention_node()
    await home.resolve(LARGE, seals=13)
    await home.pass_days(1)
    await home.collector.run_passes([Pass.HOT, Pass.WARM])
    assert home.engine.undurable_state.skipped_warm  # no archive has them
    assert (await sweep_all(home)).kept == {REFERENCED_BY_RESULT: 1}
    assert list(home.blobs.held.values()) == [LARGE]


@pytest.mark.rule("RET-002", "RCV-001")
async def test_bytes_that_wait_for_a_verdict_stay_and_go_when_it_is_bad() -> None:
    home = await retention_node()
    await home.pass_days(1)
    task, lease = await home.leased_job(LARGE)
    await home.engine.submit(home.completion(task, lease, LARGE))
    assert (await sweep_all(home)).kept == {SUBMITTED_MEANWHILE: 1}
    assert list(home.blobs.held.values()) == [LARGE]
    await home.engine.submit(RecordVerdict(lease.id, False, "bad"))
    assert (await sweep_all(home)).deleted == 1


@pytest.mark.rule("RET-002", "RCV-001")
async def test_an_orphan_that_is_submitted_while_its_deletion_is_pending_is_to_be_sent_again() -> None:
    home = await retention_node()
    await home.pass_days(1)
    task, lease = await home.leased_job(LARGE)
    seen = []

    async def sweep(digests: object) -> list[object]:
        seen.append(await home.engine.submit(home.completion(task, lease, LARGE)))
        return list(home.engine.undurable_state.warm_deletes_pending)  # its door has just looked whether they are held

    home.blobs.sweep = sweep  # type: ignore[method-assign, assignment]
    report = await sweep_all(home)
    (outcome,) = seen
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.hint) == ("RCV-001", "send the output again, then complete")
    assert (
        report.deleted,
        home.engine.undurable_state.skipped_warm,
        home.engine.undurable_state.warm_deletes_pending,
    ) == (0, {}, {})
    assert not isinstance(await home.engine.submit(home.completion(task, lease, LARGE)), Refused)


# ------------------------------------------------------------------------------------------------ bounded, dry, killed


@pytest.mark.rule("RET-003")
async def test_a_dry_run_reports_orphans_and_changes_nothing() -> None:
    home = await retention_node(gc_rows_max=4)
    await home.resolve(LARGE, seals=13)
    leave_files(home, *ORPHANS)
    await home.pass_days(1)
    before = (home.engine.durable_head, digest(home.engine.undurable_state), dict(home.blobs.held))
    first = await home.collector.run_pass(Pass.ORPHANS, is_dry=True)
    second = await home.collector.run_pass(Pass.ORPHANS, is_dry=True, after=first.until)
    assert (home.engine.durable_head, digest(home.engine.undurable_state), dict(home.blobs.held)) == before
    assert (first.is_done, second.is_done, second.until) == (False, True, SCAN_END)
    assert (first.looked + second.looked, first.dropped + second.dropped) == (7, 6)
    assert (first.freed_bytes + second.freed_bytes, first.deleted + second.deleted) == (6 * SIZE, 0)


@pytest.mark.rule("RET-003")
@pytest.mark.parametrize(
    ("knobs", "dropped"),
    [({"gc_rows_max": 2}, 2), ({"gc_bytes_max": 3 * SIZE}, 3), ({"gc_bytes_max": 1}, 1)],
)
async def test_a_run_ends_at_its_limits_and_the_next_one_goes_on(knobs: dict[str, int], dropped: int) -> None:
    home = await retention_node(**knobs)
    leave_files(home, *ORPHANS)
    await home.pass_days(1)
    report = await home.collector.run_pass(Pass.ORPHANS)
    assert (report.is_done, report.dropped, len(home.blobs.held)) == (False, dropped, 6 - dropped)
    assert (await sweep_all(home)).dropped == 6 - dropped
    assert home.blobs.held == {}


@pytest.mark.rule("RET-003")
async def test_files_that_stay_do_not_block_orphans_behind_them() -> None:
    home = await retention_node(gc_rows_max=2)
    for number in range(6):
        await home.resolve(b"%d is needed" % number * 100)
    leave_files(home, *ORPHANS)
    await home.pass_days(1)
    async with asyncio.timeout(60):
        found = await sweep_all(home)
    assert (found.looked, found.dropped, found.kept) == (12, 6, {REFERENCED_BY_RESULT: 6})
    assert set(home.blobs.held.values()) == set(home.outputs.values())


@pytest.mark.rule("RET-003")
async def test_a_run_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.workers.retention.orphan_sweeper.PAGE", 2)
    home = await retention_node(gc_ms_max=50)
    leave_files(home, *ORPHANS)
    await home.pass_days(1)
    aged = home.blobs.list_aged

    async def slow(*told: int) -> object:
        home.clock.monotonic += 60
        return await aged(*told)

    home.blobs.list_aged = slow  # type: ignore[method-assign, assignment]
    home.clock.slept.clear()
    reports = await home.collector.run_passes([Pass.ORPHANS])
    assert [(each.dropped, each.is_done) for each in reports] == [(2, False), (2, False), (2, True)]
    assert home.clock.slept == [60, 60]


@pytest.mark.rule("RET-003")
async def test_killed_at_any_step_it_ends_in_the_same_place() -> None:
    async def begun() -> RetentionNode:
        home = await retention_node()
        await home.resolve(LARGE, seals=13)
        leave_files(home, *ORPHANS)
        await home.pass_days(1)
        home.fuse.burnt = 0
        return home

    home = await begun()
    await sweep_all(home)
    count = home.fuse.burnt
    assert count >= 8  # two events and six files
    for at in range(1, count + 1):
        home = await begun()
        home.fuse.at = at
        with suppress(Unavailable):
            await sweep_all(home)
        await home.kill()
        home.fuse.at = None
        await home.open()
        await home.collector.resume_deletes()
        await sweep_all(home)
        assert list(home.blobs.held.values()) == [LARGE]
        assert home.engine.undurable_state.warm_deletes_pending == {}
        assert digest(await home.world.recovered()) == digest(home.engine.undurable_state)
        await home.kill()


@pytest.mark.rule("RET-003")
async def test_the_worker_looks_for_orphans_at_its_start_and_then_once_in_a_while() -> None:
    home, rounds = await retention_node(), 0
    aged = home.blobs.list_aged

    async def counted(*told: int) -> object:
        nonlocal rounds
        rounds += 1
        return await aged(*told)

    home.blobs.list_aged = counted  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(run_periodically(home.collector, home.clock))

    async def turns(count: int) -> int:
        for _ in range(count):
            await asyncio.sleep(0)
        return rounds

    try:
        assert await turns(300) == 1
        home.clock.monotonic += ORPHAN_SCAN_MS - 1
        assert await turns(300) == 1
        home.clock.monotonic += 1
        assert await turns(300) == 2
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ------------------------------------------------------------------------------------------------ on real files


async def put(warm: WarmStore, raw: bytes) -> None:
    arriving = await warm.receive()
    await arriving.write(raw)
    await arriving.keep()


@pytest.mark.rule("RET-002", "TIER-001")
async def test_a_real_folder_loses_its_orphans_and_nothing_else(tmp_path: Path) -> None:
    home, folder = await retention_node(), tmp_path / "warm"
    await home.resolve(LARGE, seals=13)
    warm = WarmStore(folder)
    for raw in (LARGE, b"young", *ORPHANS):
        await put(warm, raw)
    for raw in (LARGE, *ORPHANS):
        os.utime(path_of(folder, result_digest(raw)), (1, 1))
    (folder / "00").mkdir(exist_ok=True)
    for name in ("read me", "00/aa", "00/no"):
        (folder / name).write_bytes(b"somebody's")
    await home.pass_days(2)
    await warm.size(result_digest(ORPHANS[0]))  # somebody is about to hand it in
    collector = Collector(home.engine, warm, home.clock, home.archive)
    dry = await collector.run_pass(Pass.ORPHANS, is_dry=True)
    (done,) = await collector.run_passes([Pass.ORPHANS])
    assert (dry.dropped, dry.freed_bytes, dry.deleted) == (done.dropped, done.freed_bytes, 0)
    assert (done.dropped, done.freed_bytes, done.deleted) == (5, 5 * SIZE, 5)
    assert [await warm.read(result_digest(raw)) for raw in (LARGE, b"young", ORPHANS[0])] == [
        LARGE,
        b"young",
        ORPHANS[0],
    ]
    assert [await warm.read(result_digest(raw)) for raw in ORPHANS[1:]] == [None] * 5
    assert collector.bytes_warm == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    await put(warm, ORPHANS[1])  # and it can be sent again
    assert await warm.size(result_digest(ORPHANS[1])) == SIZE
