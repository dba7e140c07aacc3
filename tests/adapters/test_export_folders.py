"""Scheduled exports on a disk: whole ones have a name and a manifest, whatever interrupts; only old ones go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.adapters.export_folders import MANIFEST, UNFINISHED, ExportFolders
from holdfast.core.base.errors import Unavailable

pytestmark = pytest.mark.rule("ENG-004")
HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


async def export(folders: ExportFolders, number: int, at_ms: int | None = None) -> str:
    """What an export does: it adds a segment, then its manifest."""
    folder = await folders.begin()
    (folder / f"{number}.segment").write_text(f"segment {number}")
    (folder / MANIFEST).write_text(f'{{"batches": {number}}}')
    return await folders.finish(NOW_MS + number * HOUR_MS if at_ms is None else at_ms)


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> ExportFolders:
    root = tmp_path / "backups"
    root.mkdir()
    return ExportFolders(root)


async def test_a_new_export_shares_the_segments_of_the_newest_one_and_changes_nothing_of_it(
    folders: ExportFolders,
) -> None:
    first = folders.root / await export(folders, 1)
    before = content(first)
    second = folders.root / await export(folders, 2)
    assert content(first) == before
    assert content(second) == {
        "1.segment": "segment 1",
        "2.segment": "segment 2",
        MANIFEST: '{"batches": 2}',
    }
    assert (first / "1.segment").stat().st_ino == (second / "1.segment").stat().st_ino
    assert (first / MANIFEST).stat().st_ino != (second / MANIFEST).stat().st_ino
    assert [each.name for each in await folders.finished()] == [first.name, second.name]


async def test_where_a_file_system_has_no_links_segments_are_copied(
    folders: ExportFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await export(folders, 1)

    def no_links(*_: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr("os.link", no_links)
    second = folders.root / await export(folders, 2)
    assert (second / "1.segment").read_text() == "segment 1"


async def test_an_unfinished_export_is_continued_and_is_none_before(folders: ExportFolders) -> None:
    await export(folders, 1)
    folder = await folders.begin()
    (folder / "2.segment").write_text("half of it")
    assert [each.batches for each in await folders.finished()] == [1]
    assert await folders.begin() == folder == folders.root / UNFINISHED
    assert (folder / "2.segment").exists()
    assert not (folder / MANIFEST).exists(), "it must not pass for an export of the time before"


async def test_links_that_a_crash_left_half_made_are_made_again(
    folders: ExportFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    await export(folders, 1)
    await export(folders, 2)
    with monkeypatch.context() as patched:
        patched.setattr("holdfast.adapters.export_folders.sync_folder", raise_full)
        with pytest.raises(Unavailable, match="free some disk space"):
            await folders.begin()
    assert not (folders.root / UNFINISHED).exists()
    assert sorted(content(await folders.begin())) == ["1.segment", "2.segment"]


def raise_full(_: Path) -> None:
    raise OSError(28, "No space left on device")


async def test_the_newest_stay_and_nothing_of_others_is_deleted(folders: ExportFolders) -> None:
    for name in ("photos", "2026-13-01T000000Z", "2026-1-1T000000Z"):
        (folders.root / name).mkdir()
    names = [await export(folders, number) for number in (1, 2, 3, 4)]
    assert await folders.delete_old(2) == names[:2]
    assert [each.name for each in await folders.finished()] == names[2:]
    assert {"photos", "2026-13-01T000000Z", "2026-1-1T000000Z"} < {entry.name for entry in folders.root.iterdir()}
    assert content(folders.root / names[3])["1.segment"] == "segment 1", "what later ones share stays"


async def test_a_deletion_that_was_interrupted_is_finished_later_and_is_no_export_meanwhile(
    folders: ExportFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [await export(folders, number) for number in (1, 2)]
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", raise_full)
        with pytest.raises(Unavailable):
            await folders.delete_old(1)
    assert [each.name for each in await folders.finished()] == names[1:]
    assert await folders.delete_old(1) == names[:1]
    assert not (folders.root / names[0]).exists()


async def test_what_has_more_history_is_newer_whatever_the_clock_said(folders: ExportFolders) -> None:
    first = await export(folders, 1, NOW_MS)
    second = await export(folders, 2, NOW_MS - HOUR_MS)
    third = await export(folders, 3, NOW_MS)
    assert len({first, second, third}) == 3, "no two have one name"
    assert [each.name for each in await folders.finished()] == [first, second, third]
    (folders.root / third / MANIFEST).write_text("damaged")
    assert [each.name for each in await folders.finished()][-1] == second


async def test_a_folder_that_is_an_export_is_no_folder_of_exports(folders: ExportFolders) -> None:
    assert await folders.why_not() is None
    (folders.root / MANIFEST).touch()
    refusal = await folders.why_not()
    assert refusal is not None
    assert "is an export itself" in refusal.message
