"""The process of a follower: what `--once` compares with its peers."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import msgspec
import pytest

from holdfast import config
from holdfast.app.follower import FollowerProcess
from holdfast.core.base.values import Height


class GrowingPeers:
    """One peer, with one more final block at every question."""

    def __init__(self) -> None:
        self._heights = count(5)

    def names(self) -> list[str]:
        return ["oak"]

    async def final_height(self, _: str) -> Height:
        return Height(next(self._heights))


@pytest.mark.rule("SYN-001")
async def test_blocks_that_become_final_meanwhile_are_not_taken_for_refused_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = config.load(None, {}, {"data": tmp_path})
    assert isinstance(loaded, config.Config)
    archive = msgspec.structs.replace(loaded.archive, kzg_processes=1)
    process = FollowerProcess(msgspec.structs.replace(loaded, archive=archive), [], [bytes(32)], None, None)
    followed = [Height(0)]

    async def final_height() -> Height:
        return followed[-1]

    async def run_once() -> None:
        followed.append(Height(5))

    monkeypatch.setattr(process, "_peers", GrowingPeers())
    monkeypatch.setattr(process.follower, "final_height", final_height)
    monkeypatch.setattr(process.follower, "run_once", run_once)
    status = await process.run(asyncio.Event(), once=True)
    assert (status.height, status.peers_height) == (5, 5)
    await process.close()
