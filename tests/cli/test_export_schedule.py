"""`db export --every` by a clock that the test moves: when one is due, what is tried again, what the metrics say."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.simulation.world import SimulatedClock
from tests.stories import data_folder
from tests.stories.forked_command import run_program
from tests.stories.node_process import HOLDFAST

from holdfast.adapters.export_folders import MANIFEST, ExportFolders
from holdfast.cli.db.export_schedule import LOOK_MS_MAX, RETRY_MS_FIRST, ExportSchedule
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.history.export_import import ExportManifest

pytestmark = pytest.mark.rule("ENG-004")
HOUR_MS = 3_600_000


class PassingClock(SimulatedClock):
    """Sleeping takes as long as it says; the schedule ends at a time."""

    def __init__(self, until_ms: int) -> None:
        super().__init__()
        self.wall, self._until_ms = 1_800_000_000_000, 1_800_000_000_000 + until_ms
        self.slept: list[int] = []

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)
        self.wall += ms
        self.monotonic += ms
        if self.wall > self._until_ms:
            raise asyncio.CancelledError


class Exporter:
    """Writes what an export writes; fails as often as it is told to."""

    def __init__(self, *faults: Unavailable | Refused) -> None:
        self.batches, self._faults = 0, list(faults)

    async def __call__(self, folder: Path) -> ExportManifest | Refused:
        fault = self._faults.pop(0) if self._faults else None
        if isinstance(fault, Unavailable):
            raise fault
        if fault is not None:
            return fault
        self.batches += 1
        (folder / MANIFEST).write_text(f'{{"batches": {self.batches}}}')
        return ExportManifest(batches=self.batches, events=0, term=1, time_ms=0, hash="", digest="")


def make_schedule(root: Path, clock: PassingClock, exporter: Exporter, keep: int = 100) -> ExportSchedule:
    root.mkdir(exist_ok=True)
    return ExportSchedule(ExportFolders(root), exporter, clock, every_ms=6 * HOUR_MS, keep=keep)


async def run(schedule: ExportSchedule) -> None:
    with pytest.raises(asyncio.CancelledError):
        await schedule.run()


def value(schedule: ExportSchedule, name: str) -> float:
    found = schedule.metrics.registry.get_sample_value(name)
    assert found is not None
    return found


async def test_one_is_made_at_once_and_then_as_often_as_asked(tmp_path: Path) -> None:
    clock, exporter = PassingClock(24 * HOUR_MS - 1), Exporter()
    schedule = make_schedule(tmp_path, clock, exporter, keep=3)
    await run(schedule)
    assert exporter.batches == 4
    finished = await ExportFolders(tmp_path).finished()
    assert [each.batches for each in finished] == [2, 3, 4]
    assert max(clock.slept) <= LOOK_MS_MAX, "the wall clock may be set meanwhile"
    assert value(schedule, "holdfast_exports_kept") == 3
    assert value(schedule, "holdfast_export_batches") == 4
    assert value(schedule, "holdfast_export_finished_seconds") == finished[-1].at_ms // 1000


async def test_after_a_restart_the_next_one_is_due_when_it_was_due(tmp_path: Path) -> None:
    clock = PassingClock(HOUR_MS)
    await run(make_schedule(tmp_path, clock, Exporter()))
    again = Exporter()
    clock._until_ms = clock.wall + 4 * HOUR_MS
    await run(make_schedule(tmp_path, clock, again))
    assert again.batches == 0
    clock._until_ms = clock.wall + HOUR_MS
    await run(make_schedule(tmp_path, clock, again))
    assert again.batches == 1


async def test_an_export_from_the_future_keeps_no_other_back(tmp_path: Path) -> None:
    clock, exporter = PassingClock(1), Exporter()
    await run(make_schedule(tmp_path, clock, exporter))
    clock.wall -= 48 * HOUR_MS
    clock._until_ms = clock.wall + 1
    await run(make_schedule(tmp_path, clock, exporter))
    assert exporter.batches == 2


@pytest.mark.parametrize(
    "fault", [Unavailable("ENG-001", "the disk is away"), Refused("ENG-004", "the journal is empty")], ids=type
)
async def test_what_fails_is_counted_and_tried_again_ever_later(tmp_path: Path, fault: Unavailable | Refused) -> None:
    clock, exporter = PassingClock(HOUR_MS), Exporter(fault, fault)
    schedule = make_schedule(tmp_path, clock, exporter)
    await run(schedule)
    assert clock.slept[:2] == [RETRY_MS_FIRST, 2 * RETRY_MS_FIRST]
    assert exporter.batches == 1
    assert value(schedule, "holdfast_export_failures_total") == 2


def test_the_command_keeps_so_many_exports_and_stops_in_order(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    asyncio.run(data_folder.make_folder(data))
    command = [str(HOLDFAST), "db", "export", "--data", str(data), "--to", str(backups)]
    scheduled = subprocess.Popen([*command, "--every", "1s", "--keep", "2"], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not is_rotated(backups):
            assert time.monotonic() < end, list(backups.iterdir())
            assert scheduled.poll() is None
            time.sleep(0.05)
        second = subprocess.run([*command, "--every", "1s"], capture_output=True, text=True, check=False, timeout=60)
        assert (second.returncode, "another process is working on" in second.stderr) == (75, True), second.stderr
        scheduled.send_signal(signal.SIGTERM)
        _, log = scheduled.communicate(timeout=60)
        assert scheduled.returncode == 0, log
    finally:
        scheduled.kill()
    assert "export_deleted" in log
    assert "export_schedule_stopped" in log
    newest = str(sorted(backups.glob("2*Z"))[-1])
    restored = run_program("db", "import", "--data", tmp_path / "restored", "--from", newest)
    assert restored.returncode == 0, restored.stderr


def is_rotated(backups: Path) -> bool:
    """Two are there, and the first one is not among them any more."""
    names = sorted(each.name for each in backups.glob("2*Z"))
    first = backups.parent / "first"
    if names and not first.exists():
        first.write_text(names[0])
    return len(names) == 2 and first.read_text() not in names


@pytest.mark.parametrize(
    ("every", "message"), [("soon", "--every: 'soon' is not a duration"), ("999ms", "less than a second")]
)
def test_a_time_that_is_none_is_refused(tmp_path: Path, every: str, message: str) -> None:
    run = run_program("db", "export", "--data", tmp_path, "--to", tmp_path / "to", "--every", every)
    assert message in run.stderr
    assert not (tmp_path / "to").exists()
