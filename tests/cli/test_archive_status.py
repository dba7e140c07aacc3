"""`holdfast archive status --wait` waits for outputs that are in no blob yet, and for nothing that came later."""

from __future__ import annotations

from typing import Any, cast

import pytest
import typer

from holdfast.cli import archive
from holdfast.cli.terminal.node_client import NodeSession

pytestmark = pytest.mark.rule("ARC-001")
IDLE = {"archived": 0, "pending": 0, "stalled": 0, "waiting_again": 0, "backlog_height": 0, "head": 5}
IDLE |= {"unpacked": 0, "unpacked_height": 0, "blob_wait_blocks": 30, "is_on": True}


class Told:
    """A node that gives these answers, one after the other."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.left = [IDLE | each for each in answers]

    async def call(self, method: str) -> dict[str, Any]:
        assert method == "archive.getStatus"
        return self.left.pop(0)


async def wait(*answers: dict[str, Any]) -> int:
    """How many answers it did not wait for."""
    node = Told(*answers)
    await archive._wait(cast(NodeSession, node))
    return len(node.left)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "POLL_S", 0)


async def test_an_output_without_a_blob_is_waited_for_until_its_blob_is_archived() -> None:
    unpacked = {"unpacked": 1, "unpacked_height": 5}
    pending = {"head": 36, "pending": 1, "backlog_height": 37}
    assert await wait(unpacked, {"head": 35} | unpacked, pending, pending, {"head": 50, "archived": 1}) == 0


async def test_what_came_after_the_call_is_not_waited_for() -> None:
    later = {"head": 7, "unpacked": 1, "unpacked_height": 6}
    assert await wait({"pending": 1, "backlog_height": 6}, later, later) == 1
    assert await wait({"pending": 1, "backlog_height": 6}, {"pending": 1, "backlog_height": 7}, IDLE) == 1


async def test_it_ends_where_all_that_is_left_is_stalled_and_waits_for_orphaned_blobs() -> None:
    stalled = {"pending": 2, "stalled": 2, "backlog_height": 3}
    assert await wait(stalled, IDLE) == 1
    assert await wait({"waiting_again": 1}, stalled, IDLE) == 1


async def test_without_an_archive_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        await wait({"is_on": False, "unpacked": 3, "unpacked_height": 1})
    assert "no archive is configured" in capsys.readouterr().err
