"""Swept bytes are durably deleted before that is reported, with one sync for all of them."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path

import pytest
from tests.adapters.warm_store_builder import filled_warm_store

import holdfast.adapters.warm_store as warm_module
from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.core.base.errors import Unavailable
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("RET-002")
RAWS = [bytes([n]) * 100 for n in range(5)]
DIGESTS = [result_digest(raw) for raw in RAWS]


async def test_one_sync_after_all_of_them_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm, left = await filled_warm_store(tmp_path / "warm", RAWS), list[int]()

    def look(_: Path) -> None:
        left.append(sum(path_of(tmp_path / "warm", each).exists() for each in DIGESTS))

    monkeypatch.setattr(warm_module, "sync_filesystem", look)
    assert await warm.sweep(DIGESTS) == []
    assert left == [0]
    await warm.size(DIGESTS[0])  # somebody is going to rely on it
    assert await warm.sweep(DIGESTS[:1]) == DIGESTS[:1]
    assert left == [0]


async def test_where_it_cannot_be_made_durable_the_deletion_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = await filled_warm_store(tmp_path / "warm", RAWS)

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "simulated")

    with monkeypatch.context() as broken:
        broken.setattr(warm_module, "sync_filesystem", fail)
        with pytest.raises(Unavailable, match="TIER-001"):
            await warm.sweep(DIGESTS)
    assert await warm.sweep(DIGESTS) == []


async def test_a_folder_that_never_was_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert await WarmStore(tmp_path / "warm").sweep(DIGESTS) == []


async def test_bytes_that_are_being_deleted_are_not_reported_as_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, told = await filled_warm_store(tmp_path / "warm", RAWS), list[int | None]()
    unlink = os.unlink

    def late(name: str) -> None:
        """Just before the file is deleted: it was not requested when that was decided."""
        told.append(asyncio.run(warm.size(DIGESTS[0])))
        unlink(name)

    monkeypatch.setattr(os, "unlink", late)
    assert await warm.sweep(DIGESTS[:1]) == []
    assert told == [None]
    monkeypatch.undo()
    again = await warm.receive()
    await again.write(RAWS[0])
    await again.keep()
    assert await warm.size(DIGESTS[0]) == 100


async def test_who_has_asked_is_forgotten_in_order_and_asking_costs_the_same_however_many_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, now_s = WarmStore(tmp_path / "warm"), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    begun = time.process_time()
    for number in range(30_000):
        warm._record_request(result_digest(number.to_bytes(4, "big")))
    assert time.process_time() - begun < 10  # going through all of them at each would take minutes
    assert len(warm._recently_requested) == 30_000
    now_s += warm_module.RECENT_USE_S - 1
    warm._record_request(result_digest(bytes(4)))  # once more
    assert len(warm._recently_requested) == 30_000
    now_s += 2
    warm._record_request(DIGESTS[0])
    assert set(warm._recently_requested) == {result_digest(bytes(4)), DIGESTS[0]}


async def test_bytes_that_nobody_relies_on_are_not_kept_by_a_question(
    tmp_path: Path,
) -> None:
    warm = await filled_warm_store(tmp_path / "warm", RAWS)
    small = result_digest(b"small")
    await warm.put_many({small: b"small"})
    assert [await warm.is_held(digest) for digest in (DIGESTS[0], small, result_digest(b"never"))] == [
        True,
        True,
        False,
    ]
    assert await warm.sweep(DIGESTS[:1]) == []
    assert not await warm.is_held(DIGESTS[0])
