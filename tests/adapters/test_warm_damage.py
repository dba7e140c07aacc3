"""Damaged bytes in the warm tier: named, never served, replaced by a good copy, and kept aside for whoever asks why."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from holdfast.adapters.sqlite.small_blobs import FILE_NAME
from holdfast.adapters.warm_damage import DAMAGED_MAX, FOLDER
from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest, LeaseId
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("TIER-001")
GOOD, ROTTEN = b"good output", b"rotten output"
DIGEST = result_digest(GOOD)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "warm"


@pytest.fixture
def warm(folder: Path) -> WarmStore:
    return WarmStore(folder)


async def upload(warm: WarmStore, raw: bytes = GOOD) -> Digest:
    incoming = await warm.receive((result_digest(raw), len(raw)))
    await incoming.write(raw)
    return (await incoming.keep())[0]


def rot_file(folder: Path, digest: Digest = DIGEST, raw: bytes = ROTTEN) -> None:
    path_of(folder, digest).write_bytes(raw)


def rot_row(folder: Path, digest: Digest = DIGEST, raw: bytes = ROTTEN) -> None:
    connection = apsw.Connection(str(folder / FILE_NAME))
    connection.execute("UPDATE small SET bytes = ?, size = ? WHERE digest = ?", (raw, len(raw), digest))
    connection.close()


def set_aside(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / FOLDER).glob("*"))] if (folder / FOLDER).exists() else []


async def test_an_upload_of_the_good_bytes_takes_the_place_of_a_damaged_file(warm: WarmStore, folder: Path) -> None:
    await upload(warm)
    rot_file(folder)
    with pytest.raises(Corrupt):
        await warm.read(DIGEST)
    await upload(warm)
    assert await warm.read(DIGEST) == GOOD
    assert set_aside(folder) == [ROTTEN]
    assert await warm.usage() == len(GOOD)


async def test_an_upload_also_takes_the_place_of_a_damaged_row(warm: WarmStore, folder: Path) -> None:
    await warm.put_many({DIGEST: GOOD})
    rot_row(folder)
    await upload(warm)
    assert (await warm.read(DIGEST), await warm.size(DIGEST)) == (GOOD, len(GOOD))
    assert await warm.find_damaged([DIGEST]) == []
    assert set_aside(folder) == [ROTTEN]


async def test_a_small_output_takes_the_place_of_a_damaged_row_and_of_a_damaged_file(
    warm: WarmStore, folder: Path
) -> None:
    await warm.put_many({DIGEST: GOOD})
    rot_row(folder)
    await warm.put_many({DIGEST: GOOD, result_digest(b"other"): b"other"})
    assert await warm.read(DIGEST) == GOOD
    await upload(warm)
    rot_file(folder)
    await warm.put_many({DIGEST: GOOD})
    assert (await warm.read(DIGEST), await warm.size(DIGEST)) == (GOOD, len(GOOD))
    assert set_aside(folder) == [ROTTEN, ROTTEN]


async def test_a_good_copy_is_read_beside_a_damaged_one(warm: WarmStore, folder: Path) -> None:
    await upload(warm)
    await warm.put_many({DIGEST: GOOD})
    rot_file(folder)
    assert await warm.read(DIGEST) == GOOD
    assert await warm.find_damaged([DIGEST]) == [DIGEST]  # and it is still named


async def test_what_is_damaged_is_found_without_a_change_on_the_disk(warm: WarmStore, folder: Path) -> None:
    rows = {result_digest(raw): raw for raw in (b"row 1", b"row 2")}
    files = [await upload(warm, raw) for raw in (b"file 1", b"file 2", b"")]
    await warm.put_many(rows)
    rot_file(folder, files[1], b"file 2 and more")
    rot_row(folder, next(iter(rows)))
    (folder / "incoming" / "upload.tmp").write_bytes(b"of a running node")
    everything = [*files, *rows, result_digest(b"never held")]
    assert await WarmStore(folder).find_damaged(everything) == [files[1], next(iter(rows))]
    assert (folder / "incoming" / "upload.tmp").exists()
    assert set_aside(folder) == []


async def test_the_oldest_of_many_damaged_copies_are_deleted(warm: WarmStore, folder: Path) -> None:
    for number in range(DAMAGED_MAX + 2):
        await upload(warm)
        rot_file(folder, raw=b"rotten %03d" % number)
    await upload(warm)
    kept = set_aside(folder)
    assert kept == [b"rotten %03d" % number for number in range(2, DAMAGED_MAX + 2)]


@pytest.mark.rule("JOB-010")
async def test_what_a_lease_has_sent_is_known_to_the_next_process_and_forgotten_after_a_month(folder: Path) -> None:
    warm, lease, out = WarmStore(folder), LeaseId(b"l" * 32), Digest(b"o" * 32)
    await warm.open()
    await warm.mark_sent(lease, out)
    again = WarmStore(folder)
    assert await again.was_sent(lease, out)
    assert not await again.was_sent(LeaseId(b"m" * 32), out)
    assert not await again.was_sent(lease, Digest(b"p" * 32))
    assert await again.usage() == 0
    (mark,) = (folder / "sent").rglob("*-*")
    os.utime(mark, (0, 0))
    await again.mark_sent(LeaseId(b"l" * 31 + b"m"), out)
    assert not await again.was_sent(lease, out)
