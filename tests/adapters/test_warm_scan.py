"""Files of the warm tier by their age: a scan in steps sees each file once, wherever the steps end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.adapters.warm_store_builder import filled_warm_store

from holdfast.adapters.warm_store import RECENT_USE_S, WarmStore, path_of
from holdfast.core.base.values import Digest
from holdfast.core.result import result_digest
from holdfast.ports import SCAN_END, scan_position

pytestmark = [pytest.mark.rule("RET-002"), pytest.mark.rule("RET-003")]
RAWS = [b"%d" % number for number in range(40)]
DIGESTS = sorted(result_digest(raw) for raw in RAWS)
SOON_MS = int(time.time() * 1_000) + 7 * 24 * 3_600_000
"""After the end of the longest run."""


def beside(folder: Path, digest: Digest, count: int) -> list[Digest]:
    """More files in the same lower folder."""
    made = [Digest(digest[:2] + bytes([number]) + digest[3:]) for number in range(count)]
    for each in made:
        path_of(folder, each).write_bytes(b"x")
    return made


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1_000])
async def test_a_round_sees_every_file_once_and_in_order(tmp_path: Path, most: int) -> None:
    warm = await filled_warm_store(tmp_path / "warm", RAWS)
    there = sorted({*DIGESTS, *beside(tmp_path / "warm", DIGESTS[3], 9)})
    found, at, steps = list[Digest](), 0, 0
    while at < SCAN_END:
        aged, reached = await warm.list_aged(SOON_MS, at, most)
        assert len(aged) <= most
        assert reached > at
        found, at, steps = found + [digest for digest, _ in aged], reached, steps + 1
    assert found == there
    assert steps >= len(there) // most


async def test_only_files_that_are_old_enough_are_listed_with_their_sizes(tmp_path: Path) -> None:
    warm = await filled_warm_store(tmp_path / "warm", RAWS)
    for number, digest in enumerate(DIGESTS):
        os.utime(path_of(tmp_path / "warm", digest), ns=(0, (1_000 + number) * 1_000_000))
    assert await warm.list_aged(999, 0, 1_000) == ([], SCAN_END)
    aged, _ = await warm.list_aged(1_002, 0, 1_000)
    assert [digest for digest, _ in aged] == DIGESTS[:3]
    assert {size for _, size in aged} <= {1, 2}
    aged, _ = await warm.list_aged(1_002, scan_position(DIGESTS[2]), 1_000)
    assert [digest for digest, _ in aged] == DIGESTS[2:3]


async def test_what_is_none_of_ours_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "warm"
    warm = await filled_warm_store(folder, RAWS)
    home = path_of(folder, DIGESTS[0]).parent
    free = next(name for name in map("{:02x}".format, range(256)) if not (folder / name).exists())
    (folder / free).write_bytes(b"a file where a folder should be")
    (home / "notes").write_bytes(b"")
    (home / DIGESTS[0].hex().upper()).write_bytes(b"")
    (home / ("ee" * 32)).write_bytes(b"in another's folder")
    (home / (DIGESTS[0].hex()[:4] + "ee" * 30)).mkdir()
    (home / (DIGESTS[0].hex()[:4] + "dd" * 30)).symlink_to(home / "notes")
    await warm.receive()
    aged, _ = await warm.list_aged(SOON_MS, 0, 1_000)
    assert [digest for digest, _ in aged] == DIGESTS


async def test_a_folder_that_never_was_has_no_files(tmp_path: Path) -> None:
    assert await WarmStore(tmp_path / "warm").list_aged(SOON_MS, 0, 10) == ([], SCAN_END)
    assert await WarmStore(tmp_path / "warm").list_aged(SOON_MS, SCAN_END, 10) == ([], SCAN_END)


async def test_a_file_that_was_requested_is_young_again(tmp_path: Path) -> None:
    """A completion is on its way that relies on it, and may take its time."""
    warm = await filled_warm_store(tmp_path / "warm", RAWS)
    asked, new = (path_of(tmp_path / "warm", each) for each in DIGESTS[:2])
    os.utime(asked, (1, 1))
    lately = time.time() - RECENT_USE_S / 2
    os.utime(new, (lately, lately))
    assert [await warm.size(each) for each in DIGESTS[:2]] == [asked.stat().st_size, new.stat().st_size]
    assert asked.stat().st_mtime > lately
    assert new.stat().st_mtime == pytest.approx(lately, abs=1)  # that costs nothing
