"""docs/how-to/upgrade.md: a node goes on with data of an earlier version, and refuses by name what it cannot read."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import apsw
import pytest
from tests.golden.make_format_1 import JOURNAL, PINNED
from tests.stories.cli_runner import holdfast
from tests.stories.faults.test_node_killed import PATIENCE_S
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket

pytestmark = pytest.mark.rule("CAN-005")


def unpack_earlier(data: Path) -> Path:
    """The folder of a node of the version that fixed format 1, as it lies there when the new one is installed."""
    data.mkdir(mode=0o700)
    journal = data / "journal.db"
    journal.write_bytes(lzma.decompress(JOURNAL.read_bytes()))
    return journal


async def test_a_node_goes_on_with_the_data_of_the_version_that_fixed_the_format(tmp_path: Path) -> None:
    data = tmp_path / "data"
    unpack_earlier(data)
    before = json.loads(PINNED.read_text())
    assert holdfast("db", "export", "--data", data, "--to", tmp_path / "backup").code == 0
    node = NodeProcess(data)
    try:
        async with NodeSocket(await node.up(), PATIENCE_S) as client:
            status = await client.status()
            assert status["role"] == "owner"
            assert status["event"] > before["events"], "it goes on behind what is there"
            await client.mint(bytes(32), "alice", 1)
        assert await node.stop() == 0
    finally:
        node.end()
    assert holdfast("db", "check", "--data", data).code == 0
    restored = holdfast("db", "import", "--from", tmp_path / "backup", "--data", tmp_path / "restored")
    assert restored.code == 0, restored.err


def test_data_of_a_version_before_it_are_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    journal, before = unpack_earlier(tmp_path / "data"), json.loads(PINNED.read_text())
    with apsw.Connection(str(journal)) as db:
        db.execute("UPDATE schema_format SET format = 0")
    db.close()
    refused = holdfast("up", "--data", tmp_path / "data")
    assert refused.code == 74
    assert "another version of Holdfast" in refused.err
    with apsw.Connection(str(journal)) as db:
        assert db.execute("SELECT count(*), max(number) FROM batch").get == (before["batches"], before["batches"])
