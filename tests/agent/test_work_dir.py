"""The work folder: what a crash leaves at any point is a lease to go on with, or nothing."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.leases import work_dir
from holdfast.agent.leases.records import AcceptedOffer
from holdfast.agent.leases.work_dir import WorkDir
from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import replace_file

LEASE = bytes(range(32))
OFFER = AcceptedOffer(LEASE, LEASE[::-1], "AI", 2, b"\xa0", "attested", 1_700)


def open_work_dir(path: Path) -> list[work_dir.ResumedLease]:
    folder = WorkDir(path / "work")
    try:
        return folder.open()
    finally:
        folder.close()


async def test_everything_that_was_kept_is_found_again(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "work")
    assert folder.open() == []
    await folder.store_offer(OFFER)
    await folder.store_output(LEASE, b"out")
    folder.close()
    assert open_work_dir(tmp_path) == [work_dir.ResumedLease(OFFER, True)]


async def test_a_removed_lease_is_gone(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "work")
    folder.open()
    await folder.store_offer(OFFER)
    await folder.store_output(LEASE, b"out")
    await folder.remove(LEASE)
    await folder.remove(LEASE)
    folder.close()
    assert open_work_dir(tmp_path) == []
    assert sorted(entry.name for entry in (tmp_path / "work").iterdir()) == [".lock", "instance"]


class Crash(BaseException):
    pass


@pytest.mark.rule("EVD-006")
async def test_a_crash_at_any_call_leaves_a_whole_lease_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call to the system in turn is the last one; what is then on disk is as it was before or after a step."""
    seen: set[tuple[bool, bool]] = set()
    for last in range(100):
        data = tmp_path / str(last)
        folder = WorkDir(data / "work")
        folder.open()
        with monkeypatch.context() as patch:
            crash_after(patch, last)
            has_crashed = False
            try:
                folder._store_offer(OFFER)
                replace_file(data / "work" / LEASE.hex() / "output", b"out" * 1_000)
                work_dir._remove_dir(data / "work" / LEASE.hex())
            except Crash:
                has_crashed = True
        folder.close()
        found = open_work_dir(data)
        if found:
            assert found[0].offer == OFFER
            if found[0].has_output:
                assert (data / "work" / LEASE.hex() / "output").read_bytes() == b"out" * 1_000
            seen.add((True, found[0].has_output))
        if not has_crashed:
            break
    assert found == []
    assert seen == {(True, False), (True, True)}


def crash_after(patch: pytest.MonkeyPatch, last: int) -> None:
    """Count the calls that change the disk; the one after the last raises."""
    calls = [0]

    def counted(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if calls[0] >= last:
                raise Crash
            calls[0] += 1
            return real(*args, **kwargs)

        return call

    patch.setattr(os, "fsync", counted(os.fsync))
    for name in ("mkdir", "replace", "unlink", "rmdir"):
        patch.setattr(Path, name, counted(getattr(Path, name)))


async def test_files_are_synced_before_they_get_their_name_and_folders_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WorkDir(tmp_path / "work")
    folder.open()
    done: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(file: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{file}').readlink().name}")
        real_sync(file)

    def replace(self: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    await folder.store_offer(OFFER)
    await folder.store_output(LEASE, b"out")
    lease = LEASE.hex()
    offer = ["sync offer.tmp", "rename to offer", f"sync {lease}", "sync work"]
    assert done == [*offer, "sync output.tmp", "rename to output", f"sync {lease}"]
    folder.close()


async def test_a_damaged_offer_is_reported_and_not_guessed_around(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "work")
    folder.open()
    await folder.store_offer(OFFER)
    folder.close()
    (tmp_path / "work" / LEASE.hex() / "offer").write_bytes(b"{")
    with pytest.raises(Unavailable, match="offer"):
        open_work_dir(tmp_path)


async def test_a_disk_that_fails_is_unavailable(tmp_path: Path) -> None:
    folder = WorkDir(tmp_path / "work")
    folder.open()
    with pytest.raises(Unavailable, match="No such file"):
        await folder.store_output(LEASE, b"out")
    folder.close()


@pytest.mark.rule("EVD-006")
@pytest.mark.parametrize("raw", [b"", b"{", b'{"lease_id":"AA==","task_id":"AA==","kind":"\xff"}'])
async def test_an_offer_that_the_disk_has_damaged_is_named_and_can_be_moved_aside(tmp_path: Path, raw: bytes) -> None:
    folder = WorkDir(tmp_path / "work")
    folder.open()
    await folder.store_offer(OFFER)
    folder.close()
    ours = tmp_path / "work" / LEASE.hex()
    (ours / "offer").write_bytes(raw)
    with pytest.raises(Unavailable, match="move the folder away"):
        open_work_dir(tmp_path)
    aside = ours.rename(ours.with_name("damaged"))
    assert open_work_dir(tmp_path) == []
    assert (aside / "offer").read_bytes() == raw


@pytest.mark.rule("EVD-006")
async def test_a_folder_that_is_no_leases_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "work" / "notes" / "deeper"
    kept.mkdir(parents=True)
    (kept.parent / "todo").write_text("call somebody")
    assert open_work_dir(tmp_path) == []
    assert (kept.parent / "todo").exists()


@pytest.mark.rule("RCV-002")
async def test_a_folder_is_the_same_after_a_restart_and_a_copy_of_it_is_another(tmp_path: Path) -> None:
    first = WorkDir(tmp_path / "one")
    first.open()
    first.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    again, copied = WorkDir(tmp_path / "one"), WorkDir(tmp_path / "two")
    again.open()
    copied.open()
    assert first.instance == again.instance != copied.instance
    again.close()
    copied.close()


@pytest.mark.rule("EVD-006")
def test_an_agent_whose_disk_is_full_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    open_work_dir(tmp_path)
    monkeypatch.setattr(work_dir, "write_once", full)
    assert open_work_dir(tmp_path) == []
