"""`holdfast blob prune`: many heights go in several calls, each short enough to be answered."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.blob import operate
from holdfast.cli.blob.operate import _prune


class PruningNode:
    """Heights that may go, one that may not, and how many went in each call."""

    def __init__(self, heights: list[int]) -> None:
        self._heights, self.calls = heights, list[int]()

    async def call(self, method: str, **params: Any) -> Any:
        if method == "blob.listArchivable":
            return list(self._heights)
        gone = [height for height in self._heights if height < params["height"]]
        self._heights = self._heights[len(gone) :]
        self.calls.append(len(gone))
        return {"pruned": gone, "kept": {"9": "it is not final"} if params["height"] > 9 else {}}


@pytest.mark.rule("PRU-001")
@pytest.mark.parametrize(("before", "calls"), [(3, [2]), (100, [3, 3, 1]), (7, [3, 3])])
async def test_heights_are_pruned_in_steps_and_the_last_one_says_what_stays(
    before: int, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "HEIGHTS_A_CALL", 3)
    node = PruningNode([1, 2, 3, 4, 5, 6, 8])
    report = await _prune(node, before)
    assert node.calls == calls
    assert report["pruned"] == [height for height in (1, 2, 3, 4, 5, 6, 8) if height < before]
    assert report["kept"] == ({"9": "it is not final"} if before > 9 else {})
