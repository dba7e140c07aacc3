"""Durable files: what is synced in which order, and that a failure or a second writer damages nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.system.durable_files import (
    lock_file,
    remove_leftovers,
    rename_file,
    replace_file,
    sync_filesystem,
    write_once,
)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every sync, rename and link, as it happens."""
    done: list[str] = []
    fsync, replace, link = os.fsync, Path.replace, Path.hardlink_to

    def record_sync(file: int) -> None:
        done.append("sync folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "sync file")
        fsync(file)

    def record_replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    def record_link(self: Path, target: Path) -> None:
        done.append("link")
        link(self, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_replace)
    monkeypatch.setattr(Path, "hardlink_to", record_link)
    return done


def test_a_file_is_synced_before_it_gets_its_name_and_the_folder_after(tmp_path: Path, steps: list[str]) -> None:
    for content in (b"old and long", b"new"):
        replace_file(tmp_path / "x", content)
        assert (tmp_path / "x").read_bytes() == content
    assert steps == 2 * ["sync file", "rename", "sync folder"]
    steps.clear()
    assert write_once(tmp_path / "y", b"once")
    assert steps == ["sync file", "link", "sync folder"]
    steps.clear()
    rename_file(tmp_path / "y", tmp_path / "x")
    assert steps == ["rename", "sync folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("put", [replace_file, write_once])
def test_a_failure_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, put: Callable[[Path, bytes], Any]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    replace_file(tmp_path / "x", b"old")
    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            put(tmp_path / "x", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_second_writer_of_the_same_file_fails_and_its_leftovers_are_removed_when_it_is_gone(tmp_path: Path) -> None:
    temp = tmp_path / "x.tmp"
    writer = lock_file(temp)
    assert writer is not None
    with pytest.raises(BlockingIOError, match="another process"):
        replace_file(tmp_path / "x", b"new")
    remove_leftovers(tmp_path)
    assert temp.exists()
    os.close(writer)
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_many_writers_at_once_leave_the_content_of_one_of_them(tmp_path: Path) -> None:
    def put(content: bytes) -> bool:
        try:
            replace_file(tmp_path / "x", content)
        except BlockingIOError:
            return False
        return True

    contents = [bytes([number]) * 1_000 for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        assert any(pool.map(put, contents))
    assert (tmp_path / "x").read_bytes() in contents


def test_of_many_that_create_a_file_one_succeeds(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: write_once(tmp_path / "x", bytes([number])), range(32)))
    assert created.count(True) == 1
    assert (tmp_path / "x").read_bytes() == bytes([created.index(True)])


def test_a_lock_that_was_waited_for_is_on_the_file_that_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our open and our lock the last holder renames the file: we must not write into what it has renamed."""
    real_open = os.open

    def open_late(path: Any, *args: Any) -> int:
        file = real_open(path, *args)
        monkeypatch.undo()
        (tmp_path / "x.tmp").rename(tmp_path / "x")
        return file

    monkeypatch.setattr(os, "open", open_late)
    file = lock_file(tmp_path / "x.tmp")
    assert file is not None
    assert os.path.samestat(os.fstat(file), (tmp_path / "x.tmp").stat())
    os.close(file)


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_that_is_written_once_has_its_mode_whatever_the_umask_is(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_once(tmp_path / "x", b"x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


def test_a_whole_file_system_is_synced_by_any_of_its_folders(tmp_path: Path) -> None:
    sync_filesystem(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_filesystem(tmp_path / "missing")
