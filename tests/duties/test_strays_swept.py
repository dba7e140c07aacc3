"""Strays on the disk (RET-002): what was handed over and never accepted goes, whatever else lies there stays."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from tests.duties.retained import House, policy

from holdfast.adapters.warm import WarmFolder, place_of
from holdfast.core.policy.knobs import HOUR_MS
from holdfast.core.proof.acts import Judge
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.result import result_digest
from holdfast.core.retention import Pass
from holdfast.core.retention.decide import HANDED_IN
from holdfast.core.state import digest
from holdfast.duties.collector import ROUND_MS, Collector
from holdfast.duties.strays import OF_A_RESULT
from holdfast.engine.collected import Report
from holdfast.ports import PLACES

LARGE = b"large" * 300
STRAYS = [b"stray %d" % number * 10 for number in range(6)]
SIZE = len(STRAYS[0])


async def house(**knobs: object) -> House:
    home = House(policy(**knobs))
    await home.furnished()
    home.world.disk.before_append = home.world.disk.before_let_go = home.fuse
    return home


def lie_about(home: House, *raws: bytes) -> None:
    home.blobs.held.update({result_digest(raw): raw for raw in raws})


async def swept(home: House) -> Report:
    """A whole round, as one report."""
    total = Report("stray")
    for each in await home.collector.look([Pass.STRAY]):
        total.looked, total.dropped = total.looked + each.looked, total.dropped + each.dropped
        total.freed_bytes, total.deleted = total.freed_bytes + each.freed_bytes, total.deleted + each.deleted
        for why, count in each.kept.items():
            total.keep(why, count)
    return total


@pytest.mark.rule("RET-002", "TIER-001")
async def test_what_nobody_names_goes_and_what_a_result_needs_stays() -> None:
    home = await house()
    old = await home.resolve(LARGE, seals=13)
    young = await home.resolve(b"young" * 300)
    lie_about(home, *STRAYS)
    await home.pass_days(1)
    unlinked = await home.resolve(b"not even sealed" * 300)
    found = await swept(home)
    assert (found.looked, found.dropped, found.freed_bytes, found.deleted) == (9, 6, 6 * SIZE, 6)
    assert found.kept == {OF_A_RESULT: 3}
    assert set(home.blobs.held.values()) == {home.outputs[each] for each in (old, young, unlinked)}
    assert home.engine.state.condemned == {}
    before = home.engine.durable
    assert (await swept(home)).dropped == 0
    assert home.engine.durable == before
    assert digest(await home.world.recovered()) == digest(home.engine.state)


@pytest.mark.rule("RET-002", "TIER-001")
@pytest.mark.parametrize(
    ("hours", "age_ms", "is_swept"), [(24, -1, False), (24, 0, True), (24, 1, True), (48, 0, False)]
)
async def test_a_file_is_no_stray_before_its_hours_are_over(hours: int, age_ms: int, is_swept: bool) -> None:
    home = await house(stray_hours=hours)
    await home.pass_days(3)
    lie_about(home, STRAYS[0])
    home.blobs.since[result_digest(STRAYS[0])] = home.engine.now_ms() - 24 * HOUR_MS - age_ms
    assert (await swept(home)).deleted == is_swept
    assert (home.blobs.held == {}) is is_swept


@pytest.mark.rule("RET-002")
async def test_bytes_that_were_sent_again_after_their_result_let_go_of_them_are_strays() -> None:
    home = await house()
    task = await home.resolve(LARGE, seals=13)
    await home.archive_all()
    await home.pass_days(1)
    assert (await swept(home)).dropped == 0
    await home.collector.look()
    assert home.blobs.held == {}
    lie_about(home, LARGE)
    assert (await swept(home)).deleted == 1
    assert home.blobs.held == {}
    assert (await home.record(task)).result_digest == result_digest(LARGE)


@pytest.mark.rule("RET-002")
async def test_bytes_that_the_disk_keeps_for_a_result_that_was_left_behind_are_none() -> None:
    home = await house()
    await home.resolve(LARGE, seals=13)
    await home.pass_days(1)
    await home.collector.look([Pass.HOT, Pass.WARM])
    assert home.engine.state.kept_warm  # no archive has them
    assert (await swept(home)).kept == {OF_A_RESULT: 1}
    assert list(home.blobs.held.values()) == [LARGE]


@pytest.mark.rule("RET-002", "RCV-001")
async def test_bytes_that_wait_for_a_verdict_stay_and_go_when_it_is_bad() -> None:
    home = await house()
    await home.pass_days(1)
    task, lease = await home.offered(LARGE)
    await home.engine.submit(home.handing_in(task, lease, LARGE))
    assert (await swept(home)).kept == {HANDED_IN: 1}
    assert list(home.blobs.held.values()) == [LARGE]
    await home.engine.submit(Judge(lease.id, False, "bad"))
    assert (await swept(home)).deleted == 1


@pytest.mark.rule("RET-002", "RCV-001")
async def test_a_stray_that_is_handed_in_while_it_is_condemned_is_to_be_sent_again() -> None:
    home = await house()
    await home.pass_days(1)
    task, lease = await home.offered(LARGE)
    seen = []

    async def sweep(digests: object) -> list[object]:
        seen.append(await home.engine.submit(home.handing_in(task, lease, LARGE)))
        return list(home.engine.state.condemned)  # its door has just looked whether they are held

    home.blobs.sweep = sweep  # type: ignore[method-assign, assignment]
    report = await swept(home)
    (outcome,) = seen
    assert isinstance(outcome, Refused)
    assert (outcome.rule, outcome.hint) == ("RCV-001", "send the output again, then complete")
    assert (report.deleted, home.engine.state.kept_warm, home.engine.state.condemned) == (0, {}, {})
    assert not isinstance(await home.engine.submit(home.handing_in(task, lease, LARGE)), Refused)


# ------------------------------------------------------------------------------------------------ bounded, dry, killed


@pytest.mark.rule("RET-003")
async def test_a_dry_run_tells_of_strays_and_changes_nothing() -> None:
    home = await house(collect_rows_max=4)
    await home.resolve(LARGE, seals=13)
    lie_about(home, *STRAYS)
    await home.pass_days(1)
    before = (home.engine.durable, digest(home.engine.state), dict(home.blobs.held))
    first = await home.collector.run_pass(Pass.STRAY, is_dry=True)
    second = await home.collector.run_pass(Pass.STRAY, is_dry=True, after=first.until)
    assert (home.engine.durable, digest(home.engine.state), dict(home.blobs.held)) == before
    assert (first.is_done, second.is_done, second.until) == (False, True, PLACES)
    assert (first.looked + second.looked, first.dropped + second.dropped) == (7, 6)
    assert (first.freed_bytes + second.freed_bytes, first.deleted + second.deleted) == (6 * SIZE, 0)


@pytest.mark.rule("RET-003")
@pytest.mark.parametrize(
    ("knobs", "dropped"),
    [({"collect_rows_max": 2}, 2), ({"collect_bytes_max": 3 * SIZE}, 3), ({"collect_bytes_max": 1}, 1)],
)
async def test_a_run_ends_at_its_limits_and_the_next_one_goes_on(knobs: dict[str, int], dropped: int) -> None:
    home = await house(**knobs)
    lie_about(home, *STRAYS)
    await home.pass_days(1)
    report = await home.collector.run_pass(Pass.STRAY)
    assert (report.is_done, report.dropped, len(home.blobs.held)) == (False, dropped, 6 - dropped)
    assert (await swept(home)).dropped == 6 - dropped
    assert home.blobs.held == {}


@pytest.mark.rule("RET-003")
async def test_files_that_stay_are_not_in_the_way_of_strays_behind_them() -> None:
    home = await house(collect_rows_max=2)
    for number in range(6):
        await home.resolve(b"%d is needed" % number * 100)
    lie_about(home, *STRAYS)
    await home.pass_days(1)
    async with asyncio.timeout(60):
        found = await swept(home)
    assert (found.looked, found.dropped, found.kept) == (12, 6, {OF_A_RESULT: 6})
    assert set(home.blobs.held.values()) == set(home.outputs.values())


@pytest.mark.rule("RET-003")
async def test_a_run_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.duties.strays.PAGE", 2)
    home = await house(collect_ms_max=50)
    lie_about(home, *STRAYS)
    await home.pass_days(1)
    aged = home.blobs.aged

    async def slow(*told: int) -> object:
        home.clock.monotonic += 60
        return await aged(*told)

    home.blobs.aged = slow  # type: ignore[method-assign, assignment]
    home.clock.slept.clear()
    reports = await home.collector.look([Pass.STRAY])
    assert [(each.dropped, each.is_done) for each in reports] == [(2, False), (2, False), (2, True)]
    assert home.clock.slept == [60, 60]


@pytest.mark.rule("RET-003")
async def test_killed_at_any_step_it_ends_in_the_same_place() -> None:
    async def begun() -> House:
        home = await house()
        await home.resolve(LARGE, seals=13)
        lie_about(home, *STRAYS)
        await home.pass_days(1)
        home.fuse.burnt = 0
        return home

    home = await begun()
    await swept(home)
    count = home.fuse.burnt
    assert count >= 8  # two events and six files
    for at in range(1, count + 1):
        home = await begun()
        home.fuse.at = at
        with suppress(Unavailable):
            await swept(home)
        await home.killed()
        home.fuse.at = None
        await home.open()
        await home.collector.finish()
        await swept(home)
        assert list(home.blobs.held.values()) == [LARGE]
        assert home.engine.state.condemned == {}
        assert digest(await home.world.recovered()) == digest(home.engine.state)
        await home.killed()


@pytest.mark.rule("RET-003")
async def test_the_duty_looks_for_strays_at_its_start_and_then_once_in_a_while() -> None:
    home, rounds = await house(), 0
    aged = home.blobs.aged

    async def counted(*told: int) -> object:
        nonlocal rounds
        rounds += 1
        return await aged(*told)

    home.blobs.aged = counted  # type: ignore[method-assign, assignment]
    duty = asyncio.create_task(home.collector.run())

    async def turns(count: int) -> int:
        for _ in range(count):
            await asyncio.sleep(0)
        return rounds

    try:
        assert await turns(300) == 1
        home.clock.monotonic += ROUND_MS - 1
        assert await turns(300) == 1
        home.clock.monotonic += 1
        assert await turns(300) == 2
    finally:
        duty.cancel()
        await asyncio.gather(duty, return_exceptions=True)


# ------------------------------------------------------------------------------------------------ on real files


async def put(warm: WarmFolder, raw: bytes) -> None:
    arriving = await warm.receive()
    await arriving.write(raw)
    await arriving.keep()


@pytest.mark.rule("RET-002", "TIER-001")
async def test_a_real_folder_loses_its_strays_and_nothing_else(tmp_path: Path) -> None:
    home, folder = await house(), tmp_path / "warm"
    await home.resolve(LARGE, seals=13)
    warm = WarmFolder(folder)
    for raw in (LARGE, b"young", *STRAYS):
        await put(warm, raw)
    for raw in (LARGE, *STRAYS):
        os.utime(place_of(folder, result_digest(raw)), (1, 1))
    (folder / "00").mkdir(exist_ok=True)
    for name in ("read me", "00/aa", "00/no"):
        (folder / name).write_bytes(b"somebody's")
    await home.pass_days(2)
    await warm.size(result_digest(STRAYS[0]))  # somebody is about to hand it in
    collector = Collector(home.engine, warm, home.clock, home.cold)
    dry = await collector.run_pass(Pass.STRAY, is_dry=True)
    (done,) = await collector.look([Pass.STRAY])
    assert (dry.dropped, dry.freed_bytes, dry.deleted) == (done.dropped, done.freed_bytes, 0)
    assert (done.dropped, done.freed_bytes, done.deleted) == (5, 5 * SIZE, 5)
    assert [await warm.read(result_digest(raw)) for raw in (LARGE, b"young", STRAYS[0])] == [LARGE, b"young", STRAYS[0]]
    assert [await warm.read(result_digest(raw)) for raw in STRAYS[1:]] == [None] * 5
    assert collector.bytes_warm == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    await put(warm, STRAYS[1])  # and it can be sent again
    assert await warm.size(result_digest(STRAYS[1])) == SIZE
