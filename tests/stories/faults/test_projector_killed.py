"""The projector is a process: killed again and again it goes on from its checkpoint, and its node does not notice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.counts import counts
from tests.stories.cli_runner import holdfast
from tests.stories.faults.test_node_killed import PATIENCE_S, Requester
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket

pytestmark = pytest.mark.rule("ENG-004")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / "data")
    yield process
    process.end()


def projector_id(data: Path) -> int:
    """The process that holds the tables' lock: the file names it."""
    return int(((data / "tables.lock").read_text().split() or ["0"])[0])


async def new_projector(node: NodeProcess, before: int = 0) -> int:
    """The next process that holds the tables' lock; a node that makes its tables holds it itself for a moment."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError, ValueError):
                if (found := projector_id(node.data)) not in (0, before, node.pid):
                    return found
            await asyncio.sleep(0.01)


async def tables_at(client: NodeSocket, event: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await client.status())["tables_as_of"] < event:
            await asyncio.sleep(0.01)


async def test_a_projector_that_is_killed_is_restarted_and_the_tables_miss_nothing(node: NodeProcess) -> None:
    data = await node.up()
    projector = await new_projector(node)
    async with NodeSocket(data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 10**12)
        requester, stop = Requester(data, 1), asyncio.Event()
        work = asyncio.create_task(requester.work(stop))
        for _ in range(counts(2, 20)):
            goal = requester.count + 50
            while requester.count < goal:
                await asyncio.sleep(0.002)
                assert not work.done()
            os.kill(projector, signal.SIGKILL)
            goal = requester.count + 50
            while requester.count < goal:  # the node answers as if nothing had happened
                await asyncio.sleep(0.002)
                assert not work.done()
            projector = await new_projector(node, projector)
        stop.set()
        await work
        await tables_at(client, (await client.status())["event"])
    assert await node.stop() == 0
    assert "Traceback" not in node.log()
    checked = holdfast("db", "check", "--data", data)
    assert checked.code == 0, checked.out + checked.err


async def test_a_projector_ends_with_its_node_also_when_that_one_is_killed(node: NodeProcess) -> None:
    data = await node.up()
    first = await new_projector(node)
    async with NodeSocket(data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 100)
    await node.kill()
    await node.up()  # the next projector takes the lock once the first has ended
    assert await new_projector(node, first) != first
    async with asyncio.timeout(PATIENCE_S):
        while Path(f"/proc/{first}").exists():
            await asyncio.sleep(0.01)
    async with NodeSocket(data, PATIENCE_S) as client:
        await tables_at(client, (await client.status())["event"])
    assert await node.stop() == 0
    assert "Traceback" not in node.log()


async def test_tables_that_were_deleted_are_made_again_by_the_next_start(node: NodeProcess) -> None:
    data = await node.up()
    async with NodeSocket(data, PATIENCE_S) as client:
        await client.mint(bytes(32), "alice", 100)
        await client.reserve(b"1" * 32, "alice", 30)
    assert await node.stop() == 0
    for path in data.glob("tables.db*"):
        path.unlink()
    await node.up()
    async with NodeSocket(data, PATIENCE_S) as client:
        assert (await client.reserve(b"1" * 32, "alice", 30))["is_repeat"]
        await tables_at(client, (await client.status())["event"])
    assert await node.stop() == 0
    checked = holdfast("db", "check", "--data", data)
    assert checked.code == 0, checked.out + checked.err
