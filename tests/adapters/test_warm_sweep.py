"""Bytes that are swept away are durably gone before anybody says so, by one sync for all of them."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path

import pytest
from tests.adapters.warmed import filled

import holdfast.adapters.warm as warm_module
from holdfast.adapters.warm import WarmFolder, place_of
from holdfast.core.refusal import Unavailable
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("RET-002")
RAWS = [bytes([n]) * 100 for n in range(5)]
DIGESTS = [result_digest(raw) for raw in RAWS]


async def test_one_sync_after_all_of_them_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm, left = await filled(tmp_path / "warm", RAWS), list[int]()

    def look(_: int) -> None:
        left.append(sum(place_of(tmp_path / "warm", each).exists() for each in DIGESTS))

    monkeypatch.setattr(warm_module, "_sync_everything", look)
    assert await warm.sweep(DIGESTS) == []
    assert left == [0]
    await warm.size(DIGESTS[0])  # somebody is going to rely on it
    assert await warm.sweep(DIGESTS[:1]) == DIGESTS[:1]
    assert left == [0]


async def test_where_it_cannot_be_made_durable_nobody_is_told_that_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = await filled(tmp_path / "warm", RAWS)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "simulated")

    with monkeypatch.context() as broken:
        broken.setattr(warm_module, "_sync_everything", fail)
        with pytest.raises(Unavailable, match="TIER-001"):
            await warm.sweep(DIGESTS)
    assert await warm.sweep(DIGESTS) == []


async def test_a_folder_that_never_was_has_nothing_to_sweep(tmp_path: Path) -> None:
    assert await WarmFolder(tmp_path / "warm").sweep(DIGESTS) == []


async def test_who_asks_while_bytes_are_being_deleted_is_not_told_that_they_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm, told = await filled(tmp_path / "warm", RAWS), list[int | None]()
    unlink = os.unlink

    def late(name: str) -> None:
        """Just before the file goes: nobody had asked for it when that was decided."""
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
    warm, now_s = WarmFolder(tmp_path / "warm"), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    begun = time.process_time()
    for number in range(30_000):
        warm._note_asked(result_digest(number.to_bytes(4, "big")))
    assert time.process_time() - begun < 10  # going through all of them at each would take minutes
    assert len(warm._asked) == 30_000
    now_s += warm_module.ASKED_S - 1
    warm._note_asked(result_digest(bytes(4)))  # once more
    assert len(warm._asked) == 30_000
    now_s += 2
    warm._note_asked(DIGESTS[0])
    assert set(warm._asked) == {result_digest(bytes(4)), DIGESTS[0]}
