"""Small outputs of the warm tier: held as a group by one transaction, and treated like those in files."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from holdfast.adapters.sqlite.small_blobs import FILE_NAME, SmallBlobs
from holdfast.adapters.warm_store import WarmStore
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.result import result_digest
from holdfast.ports import SCAN_END, scan_position

pytestmark = pytest.mark.rule("TIER-001")
HOUR_MS = 3_600_000


def by_digest(*raws: bytes) -> dict[Digest, bytes]:
    return {result_digest(raw): raw for raw in raws}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "warm"


@pytest.fixture
def warm(folder: Path) -> WarmStore:
    return WarmStore(folder)


async def upload(warm: WarmStore, raw: bytes) -> Digest:
    arriving = await warm.receive()
    await arriving.write(raw)
    return (await arriving.keep())[0]


async def test_a_group_is_held_by_digest_and_found_by_the_next_process(warm: WarmStore, folder: Path) -> None:
    blobs = by_digest(b"", b"one", b"\x00\xff" * 8_000)
    await warm.put_many(blobs)
    for store in (warm, WarmStore(folder)):
        assert {digest: await store.read(digest) for digest in blobs} == blobs
        assert [await store.size(digest) for digest in blobs] == [len(raw) for raw in blobs.values()]
    assert await warm.size(result_digest(b"never")) is None
    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_a_process_that_only_reads_creates_nothing(folder: Path) -> None:
    reader = WarmStore(folder)
    folder.mkdir()
    assert (await reader.size(result_digest(b"one")), await reader.read(result_digest(b"one"))) == (None, None)
    await reader.delete(result_digest(b"one"))
    assert list(folder.iterdir()) == []
    await WarmStore(folder).put_many(by_digest(b"one"))
    assert await reader.read(result_digest(b"one")) == b"one"


async def test_a_group_is_durable_with_one_sync(warm: WarmStore, folder: Path) -> None:
    """As SQLite counts them: a commit of the write-ahead log is synced once, whatever its size."""
    await warm.put_many(by_digest(b"first"))
    writer = warm._small._writer
    assert writer is not None
    assert writer.execute("PRAGMA synchronous").get == 2
    assert writer.execute("PRAGMA journal_mode").get == "wal"
    commits: list[int] = []
    writer.set_wal_hook(lambda _, __, pages: commits.append(pages) or 0)  # type: ignore[func-returns-value]
    await warm.put_many(by_digest(*(f"output {n}".encode() for n in range(100))))
    assert len(commits) == 1


async def test_a_group_that_the_disk_refuses_is_not_held(warm: WarmStore) -> None:
    await warm.put_many(by_digest(b"before"))
    writer = warm._small._writer
    assert writer is not None
    writer.execute(f"PRAGMA max_page_count = {writer.execute('PRAGMA page_count').get}")
    with pytest.raises(Unavailable, match="full") as caught:
        await warm.put_many(by_digest(*(os.urandom(9_000) for _ in range(4))))
    assert (caught.value.rule, caught.value.hint) == ("TIER-001", "free some disk space")
    writer.execute("PRAGMA max_page_count = 1000000")
    assert await warm.usage() == len(b"before")
    await warm.put_many(by_digest(b"after"))
    assert await warm.read(result_digest(b"after")) == b"after"


async def test_damaged_bytes_are_never_given_out_and_heal_when_they_come_again(warm: WarmStore) -> None:
    blobs = by_digest(b"precious")
    (digest,) = blobs
    await warm.put_many(blobs)
    assert warm._small._writer is not None
    warm._small._writer.execute("UPDATE small SET bytes = x'00'")
    with pytest.raises(Corrupt, match="TIER-001"):
        await warm.read(digest)
    assert await warm.verify([digest]) == {}
    await warm.put_many(blobs)
    assert await warm.read(digest) == b"precious"


async def test_a_file_that_is_no_database_is_named(folder: Path) -> None:
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(b"scribble" * 1_000)
    with pytest.raises(Corrupt, match=FILE_NAME):
        SmallBlobs(folder).read(result_digest(b"one"))


@pytest.mark.rule("RET-002")
async def test_small_and_large_outputs_are_verified_deleted_and_swept_alike(warm: WarmStore, folder: Path) -> None:
    blobs = by_digest(b"one", b"two", b"three")
    one, two, three = blobs
    await warm.put_many(blobs)
    large = await upload(warm, b"large")
    assert await warm.verify([one, large, result_digest(b"never")]) == {one: 3, large: 5}
    await warm.delete(one)
    fresh = WarmStore(folder)  # nobody has asked this process for anything
    assert await fresh.size(three) == 5
    assert await fresh.sweep([two, three, large]) == [three]
    assert [await fresh.read(digest) for digest in (one, two, three, large)] == [None, None, b"three", None]


@pytest.mark.rule("RET-002")
async def test_bytes_that_were_just_put_are_not_swept(warm: WarmStore) -> None:
    blobs = by_digest(b"one")
    await warm.put_many(blobs)
    assert await warm.sweep(list(blobs)) == list(blobs)
    assert await warm.read(result_digest(b"one")) == b"one"


@pytest.mark.rule("RET-003")
@pytest.mark.parametrize("scan_max", [1, 3, 1_000])
async def test_a_scan_in_steps_finds_small_and_large_outputs_once_in_order(warm: WarmStore, scan_max: int) -> None:
    blobs = by_digest(*(f"small {n}".encode() for n in range(12)))
    await warm.put_many(blobs)
    large = [await upload(warm, f"large {n}".encode()) for n in range(5)]
    found, position = list[Digest](), 0
    later_ms = time.time_ns() // 1_000_000 + HOUR_MS
    for _ in range(10_000):
        aged, position = await warm.list_aged(later_ms, position, scan_max)
        found += [digest for digest, _ in aged]
        if position >= SCAN_END:
            break
    assert found == sorted([*blobs, *large], key=scan_position)
    assert await warm.list_aged(later_ms - 2 * HOUR_MS, 0, 1_000) == ([], SCAN_END)


async def test_a_request_makes_old_bytes_young_again(warm: WarmStore) -> None:
    blobs = by_digest(b"one")
    (digest,) = blobs
    await warm.put_many(blobs)
    assert warm._small._writer is not None
    warm._small._writer.execute("UPDATE small SET used_ms = 5")
    assert [found for found, _ in (await warm.list_aged(10, 0, 10))[0]] == [digest]
    assert await warm.size(digest) == 3
    assert await warm.list_aged(10, 0, 10) == ([], SCAN_END)


async def test_usage_counts_the_bytes_of_outputs_and_not_the_file(warm: WarmStore, folder: Path) -> None:
    await warm.put_many(by_digest(b"one", b"three"))
    await upload(warm, b"large")
    assert await warm.usage() == 13
    await warm.put_many(by_digest(b"one", b"four"))
    await warm.delete(result_digest(b"three"))
    assert await warm.usage() == await WarmStore(folder).usage() == 12


async def test_a_disk_error_is_named(warm: WarmStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await warm.put_many(by_digest(b"one"))

    def fail(self: SmallBlobs, query: str, *values: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(SmallBlobs, "_row", fail)
    with pytest.raises(Unavailable, match="Input/output"):
        await warm.read(result_digest(b"one"))
