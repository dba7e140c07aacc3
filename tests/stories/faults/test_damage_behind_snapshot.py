"""A batch before the snapshot is damaged: the node starts, finds it in the background and stops (ENG-009)."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from tests.stories.faults.test_node_killed import PATIENCE_S
from tests.stories.forked_command import run_program
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket


def cli(*args: str) -> subprocess.CompletedProcess[str]:
    return run_program(*args)


@pytest.mark.rule("ENG-009")
async def test_damage_behind_a_snapshot_stops_the_node_and_a_dead_node_is_told_from_a_hung_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = NodeProcess(data)
    async with NodeSocket(await node.up(), PATIENCE_S) as client:
        for number in range(1, 4):
            await client.mint(bytes([number]) * 32, "alice", 1)
    assert await node.stop() == 0
    assert cli("db", "snapshot", "--data", str(data)).returncode == 0
    journal = apsw.Connection(str(data / "journal.db"))
    journal.execute("UPDATE batch SET body = zeroblob(length(body)) WHERE number = 2")
    journal.close()
    with suppress(AssertionError):  # it may have ended before it was asked
        await node.up()
    assert await node.ended() == 74
    assert "ENG-001: batch 2 does not match its stored hash" in node.log()
    assert " up " in node.log(), "the start reads nothing before its snapshot"
    assert "Traceback" not in node.log()
    told = cli("doctor", "--data", str(data))
    assert "▲ node" not in told.stdout, "it ended in order: nothing is left that looks like a node"
    assert " node " in told.stdout
    assert "not running" in told.stdout
