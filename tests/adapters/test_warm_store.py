"""The warm tier on real files: bytes are complete or absent, under their digest, and verified when read."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast.adapters.warm_store as warm_module
from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.adapters.warm_upload import PART_BYTES, Upload
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.result import result_digest
from holdfast.ports import Blobs
from holdfast.system import durable_files

pytestmark = pytest.mark.rule("TIER-001")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "warm"


@pytest.fixture
def warm(folder: Path) -> WarmStore:
    return WarmStore(folder)


async def put(warm: WarmStore, raw: bytes, *, is_announced: bool = True) -> tuple[Digest, int]:
    arriving = await warm.receive((result_digest(raw), len(raw)) if is_announced else None)
    for at in range(0, len(raw), 1_000):
        await arriving.write(raw[at : at + 1_000])
    return await arriving.keep()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_announced", [True, False])
@pytest.mark.parametrize("size", [0, 1, 1_000, 1_001, 300_000])
async def test_bytes_are_held_under_their_digest(warm: WarmStore, folder: Path, size: int, is_announced: bool) -> None:
    raw = os.urandom(size)
    digest = result_digest(raw)
    assert await put(warm, raw, is_announced=is_announced) == (digest, size)
    blobs: Blobs = WarmStore(folder)  # as the next process finds it
    assert (await blobs.size(digest), await blobs.read(digest)) == (size, raw)
    name = digest.hex()
    assert files(folder) == [folder / name[:2] / name[2:4] / name]


async def test_bytes_larger_than_a_part_are_hashed_part_by_part(warm: WarmStore) -> None:
    raw = os.urandom(PART_BYTES + 5)
    arriving = await warm.receive()
    await arriving.write(raw)
    assert await arriving.keep() == (result_digest(raw), len(raw))
    assert await warm.read(result_digest(raw)) == raw


async def test_what_was_never_uploaded_is_not_held(warm: WarmStore) -> None:
    digest = result_digest(b"never")
    assert (await warm.size(digest), await warm.read(digest)) == (None, None)
    await warm.delete(digest)
    assert await warm.size(Digest(b"")) is None


@pytest.mark.parametrize("sent", [b"tuo", b"ou", b"out!", b""])
async def test_others_than_the_announced_bytes_are_not_kept(warm: WarmStore, folder: Path, sent: bytes) -> None:
    arriving = await warm.receive((result_digest(b"out"), 3))
    await arriving.write(sent)
    found, size = await arriving.keep()
    assert (found, size) != (result_digest(b"out"), 3)
    assert files(folder) == []


async def test_nothing_is_there_before_it_is_kept_and_nothing_after_it_was_dropped(
    warm: WarmStore, folder: Path
) -> None:
    arriving = await warm.receive((result_digest(b"out"), 3))
    await arriving.write(b"out")
    assert await warm.size(result_digest(b"out")) is None
    await arriving.drop()
    await arriving.drop()
    assert files(folder) == []
    for late in (arriving.write(b"out"), arriving.keep()):
        with pytest.raises(Unavailable):
            await late


async def test_dropping_what_is_kept_changes_nothing(warm: WarmStore) -> None:
    arriving = await warm.receive()
    await arriving.write(b"out")
    await arriving.keep()
    await arriving.drop()
    assert await warm.read(result_digest(b"out")) == b"out"


async def test_the_same_bytes_twice_at_once_are_held_once(warm: WarmStore, folder: Path) -> None:
    raw = os.urandom(5_000)
    assert set(await asyncio.gather(*(put(warm, raw) for _ in range(8)))) == {(result_digest(raw), 5_000)}
    assert len(files(folder)) == 1


async def test_bytes_that_are_held_stay_held_while_the_same_ones_arrive_again(
    warm: WarmStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, size = await put(warm, b"the same")
    seen: list[int | None] = []
    sync = durable_files.sync_folder

    def look_and_sync(folder: Path) -> None:
        seen.append(warm._size(digest))  # what a completion would be told in this very moment
        sync(folder)

    monkeypatch.setattr(durable_files, "sync_folder", look_and_sync)
    assert await put(warm, b"the same") == (digest, size)
    assert seen
    assert set(seen) == {size}


async def test_deleted_bytes_are_gone(warm: WarmStore, folder: Path) -> None:
    digest, _ = await put(warm, b"out")
    await warm.delete(digest)
    assert (await warm.size(digest), files(folder)) == (None, [])


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "empty"])
async def test_bytes_that_are_not_what_their_name_says_are_never_given_out(
    warm: WarmStore, folder: Path, damage: str
) -> None:
    digest, _ = await put(warm, b"precious")
    place = path_of(folder, digest)
    place.write_bytes({"flipped": b"preciouz", "cut": b"precio", "longer": b"preciouss", "empty": b""}[damage])
    with pytest.raises(Corrupt, match="TIER-001"):
        await warm.read(digest)
    await put(warm, b"precious")  # who has them sends them again: that heals it
    assert await warm.read(digest) == b"precious"


async def test_what_a_crash_left_on_its_way_is_removed_and_what_is_held_stays(folder: Path) -> None:
    before = WarmStore(folder)
    await put(before, b"held")
    cut = await before.receive()
    await cut.write(b"half of")
    assert len(files(folder)) == 2
    after = WarmStore(folder)
    assert len(files(folder)) == 2  # a standby that only reads touches nothing of the owner's
    await after.open()
    assert await after.read(result_digest(b"held")) == b"held"
    assert len(files(folder)) == 1


async def test_opening_twice_at_once_removes_nothing_that_is_being_received(folder: Path) -> None:
    for _ in range(20):
        warm = WarmStore(folder)
        raws = [os.urandom(100) for _ in range(6)]
        await asyncio.gather(*(put(warm, raw) for raw in raws))
        assert [await warm.size(result_digest(raw)) for raw in raws] == [100] * 6


async def test_files_are_for_the_node_s_user_alone(warm: WarmStore, folder: Path) -> None:
    digest, _ = await put(warm, b"out")
    place = path_of(folder, digest)
    assert [path.stat().st_mode & 0o777 for path in (place, place.parent, folder)] == [0o600, 0o700, 0o700]


# ------------------------------------------------------------------------------------------------ durable, in order


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Every sync and rename, as it happens."""
    calls: list[tuple[str, Path]] = []
    fsync, replace = os.fsync, os.replace

    def synced(file: int) -> None:
        calls.append(("sync", Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    def renamed(source: Any, target: Any) -> None:
        calls.append(("rename", Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return calls


async def test_a_file_is_synced_renamed_and_its_folders_synced_in_that_order(
    warm: WarmStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = path_of(folder, result_digest(b"out"))
    await warm.open()
    calls = recorded(monkeypatch)
    await put(warm, b"out")
    assert calls[0][0] == "sync"
    assert calls[0][1].parent == folder / "incoming"
    at = calls.index(("rename", place))
    assert {path for _, path in calls[1:at]} == {folder, place.parent.parent, place.parent}
    assert calls[at + 1 :] == [("sync", place.parent)]
    calls.clear()
    await put(warm, b"out")
    assert [call for call, _ in calls] == ["sync", "rename", "sync"]  # known folders need no more than that


async def test_what_an_earlier_process_renamed_is_synced_before_it_counts(
    warm: WarmStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have died between the rename and the sync: the name is in memory, not on the disk."""
    digest, _ = await put(warm, b"out")
    calls = recorded(monkeypatch)
    assert await WarmStore(folder).size(digest) == 3
    assert ("sync", path_of(folder, digest).parent) in calls


def failing(monkeypatch: pytest.MonkeyPatch, name: str, code: int, is_it: Callable[[Any], bool]) -> None:
    """This call fails from now on for the files that are meant."""
    real = getattr(os, name)

    def fail(first: Any, *rest: Any) -> Any:
        if is_it(first):
            raise OSError(code, os.strerror(code))
        return real(first, *rest)

    monkeypatch.setattr(os, name, fail)


def is_upload(file: Any) -> bool:
    return "incoming" in str(Path(f"/proc/self/fd/{file}").readlink())


@pytest.mark.parametrize(
    ("call", "code", "hint"),
    [("write", errno.ENOSPC, "space"), ("write", errno.EDQUOT, "space"), ("fsync", errno.EIO, "check the disk")],
)
async def test_a_disk_that_is_full_or_fails_is_named_and_nothing_is_kept(
    warm: WarmStore, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, hint: str
) -> None:
    arriving: Upload = await warm.receive((result_digest(b"out"), 3))
    failing(monkeypatch, call, code, is_upload)
    with pytest.raises(Unavailable) as caught:
        await _written_and_kept(arriving)
    assert (caught.value.rule, hint in caught.value.hint) == ("TIER-001", True)
    monkeypatch.undo()
    with pytest.raises(Unavailable):  # a write or a sync that failed is never taken for one that did not
        await arriving.keep()
    await arriving.drop()
    assert files(folder) == []


async def _written_and_kept(arriving: Upload) -> None:
    await arriving.write(b"out")
    await arriving.keep()


async def test_a_name_that_cannot_be_made_durable_does_not_count_until_it_is(
    warm: WarmStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = result_digest(b"out")
    await put(warm, b"out")
    await warm.delete(digest)
    home = str(path_of(folder, digest).parent)
    failing(monkeypatch, "fsync", errno.EIO, lambda file: str(Path(f"/proc/self/fd/{file}").readlink()) == home)
    with pytest.raises(Unavailable):
        await put(warm, b"out")
    assert await warm.size(digest) is None
    monkeypatch.undo()
    await put(warm, b"out")
    assert await warm.size(digest) == 3


async def test_a_task_that_is_cancelled_while_it_drops_drops_all_the_same(warm: WarmStore, folder: Path) -> None:
    arriving = await warm.receive()
    await arriving.write(b"out")
    task = asyncio.create_task(arriving.drop())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(60):
        while files(folder):
            await asyncio.sleep(0.001)


async def test_a_task_that_is_cancelled_while_it_writes_leaves_nothing_open(warm: WarmStore, folder: Path) -> None:
    before = _open_files()
    for _ in range(50):
        arriving = await warm.receive()
        task = asyncio.create_task(arriving.write(os.urandom(200_000)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await arriving.drop()
    assert files(folder) == []
    assert _open_files() <= before + 2


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ------------------------------------------------------------------------------------------------ letting go


@pytest.mark.rule("RET-002")
async def test_what_is_sound_was_read_to_its_last_byte(warm: WarmStore, folder: Path) -> None:
    digests = [(await put(warm, bytes([n]) * 2_000_000))[0] for n in range(3)]
    empty, _ = await put(warm, b"")
    assert await warm.verify([*digests, empty]) == dict.fromkeys(digests, 2_000_000) | {empty: 0}
    with path_of(folder, digests[0]).open("r+b") as file:
        file.seek(1_999_999)
        file.write(b"x")
    path_of(folder, digests[1]).unlink()
    missing = result_digest(b"never given")
    assert await warm.verify([*digests, missing]) == {digests[2]: 2_000_000}
    path_of(folder, digests[2]).write_bytes(b"")
    assert await warm.verify(digests) == {}


@pytest.mark.rule("RET-002")
async def test_what_is_swept_away_is_gone_and_what_is_gone_is_not_missed(warm: WarmStore, folder: Path) -> None:
    digests = [(await put(warm, bytes([n])))[0] for n in range(3)]
    fresh = WarmStore(folder)  # nobody has asked this process for anything
    assert await fresh.sweep(digests[:2]) == []
    assert await fresh.sweep(digests[:2]) == []
    assert files(folder) == [path_of(folder, digests[2])]


@pytest.mark.rule("RET-002", "RCV-001")
async def test_what_was_requested_a_moment_ago_is_not_deleted(
    warm: WarmStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = await put(warm, b"one")
    two, _ = await put(warm, b"two")
    assert await warm.size(two) == 3
    assert await warm.requested_lately([one, two]) == {two}
    assert await warm.sweep([one, two]) == [two]
    assert files(folder) == [path_of(folder, two)]
    monkeypatch.setattr(warm_module, "RECENT_USE_S", 0.0)
    assert await warm.sweep([two]) == []
    assert files(folder) == []


async def test_who_asked_long_ago_is_forgotten(warm: WarmStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_module, "RECENT_USE_S", 0.0)
    for n in range(50):
        await warm.size(result_digest(bytes([n])))
        assert len(warm._recently_requested) == 1


async def test_usage_is_what_rests_on_the_disk(warm: WarmStore, folder: Path) -> None:
    assert await warm.usage() == 0
    one, _ = await put(warm, b"x" * 1_000)
    await put(warm, b"y" * 500)
    await put(warm, b"x" * 1_000)  # the same again
    assert await warm.usage() == await WarmStore(folder).usage() == 1_500
    await warm.delete(one)
    assert await warm.usage() == 500
    await WarmStore(folder).sweep([one])
    assert await warm.usage() == 500
