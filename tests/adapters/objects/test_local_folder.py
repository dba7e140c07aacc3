"""The folder's promise at the level of the system calls: which comes first, and what a crash leaves."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.objects import local_folder
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import lock_file


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of what makes an object durable; each step can be told to fail."""
    steps: list[str] = []

    def watch(module: Any, name: str, says: str) -> None:
        real = getattr(module, name)

        def step(*args: Any, **options: Any) -> Any:
            steps.append(says)
            return real(*args, **options)

        monkeypatch.setattr(module, name, step)

    watch(local_folder, "sync_file", "sync file")
    watch(local_folder, "_link", "link")
    watch(local_folder, "sync_folder", "sync folder")
    return steps


@pytest.mark.rule("ARC-004")
async def test_the_bytes_are_synced_before_the_name_exists_and_the_name_before_the_answer(
    tmp_path: Path, log: list[str]
) -> None:
    objects = LocalObjects(tmp_path)
    await objects.put_once("a/first", b"x")
    log.clear()
    await objects.put_once("a/second", b"x")
    assert log == ["sync file", "link", "sync folder"]


@pytest.mark.rule("ARC-004")
async def test_a_new_folder_is_durable_before_an_object_is_put_into_it(tmp_path: Path, log: list[str]) -> None:
    await LocalObjects(tmp_path).put_once("a/b/c", b"x")
    assert log == ["sync folder"] * 3 + ["sync file", "link", "sync folder"]  # .tmp, a, a/b


@pytest.mark.rule("ARC-004")
@pytest.mark.parametrize("step", ["sync_file", "_link", "sync_folder"])
async def test_a_step_that_fails_leaves_no_half_object_and_the_next_attempt_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    objects = LocalObjects(tmp_path)
    await objects.put_once("a/first", b"x")
    with monkeypatch.context() as failing:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        failing.setattr(local_folder, step, fail)
        with pytest.raises(Unavailable, match="ARC-004"):
            await objects.put_once("a/second", b"whole")
    assert await objects.read("a/second") in (None, b"whole")
    assert list((tmp_path / ".tmp").iterdir()) == []
    await objects.put_once("a/second", b"whole")
    assert await objects.read("a/second") == b"whole"


@pytest.mark.rule("ARC-004")
async def test_what_a_killed_process_left_is_removed_and_what_another_one_writes_is_not(tmp_path: Path) -> None:
    (tmp_path / ".tmp").mkdir()
    leftover, being_written = tmp_path / ".tmp" / "dead.tmp", tmp_path / ".tmp" / "alive.tmp"
    leftover.write_bytes(b"half")
    file = lock_file(being_written)
    assert file is not None
    try:
        await LocalObjects(tmp_path).put_once("a", b"x")
        assert (leftover.exists(), being_written.exists()) == (False, True)
    finally:
        os.close(file)


@pytest.mark.rule("ARC-004")
async def test_a_file_of_another_disk_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, real = tmp_path / "source", Path.hardlink_to
    source.write_bytes(b"x" * 3_000_000)

    def link(self: Path, target: Path) -> None:
        if target == source:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(self, target)

    monkeypatch.setattr(Path, "hardlink_to", link)
    objects = LocalObjects(tmp_path / "objects")
    assert await objects.put_once("a", source)
    assert await objects.read("a") == source.read_bytes()
    assert (tmp_path / "objects" / "a").stat().st_ino != source.stat().st_ino


@pytest.mark.rule("ARC-004")
async def test_a_spooled_file_is_linked_not_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    await LocalObjects(tmp_path / "objects").put_once("a", source)
    assert (tmp_path / "objects" / "a").stat().st_ino == source.stat().st_ino
