"""The life of a node around its engine: a stop signal while it starts, neighbours, and workers that fail."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest
from tests.stories.node_process import NodeProcess

from holdfast.api.node_access import LOCAL
from holdfast.app.node import Node
from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import OwnershipTaken
from holdfast.core.base.values import Term
from holdfast.workers.reaper import Reaper

TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def _collector_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node freezes what it has loaded; the process that tests goes on for long after it."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)


@pytest.mark.rule("ENG-002")
async def test_a_node_that_is_asked_to_stop_while_it_starts_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, started = Node(Config(data=tmp_path)), asyncio.Event()

    async def start() -> None:
        started.set()
        await asyncio.Event().wait()  # a store that is away, or a million events to fold

    monkeypatch.setattr(node.engine, "start", start)
    running = asyncio.create_task(node.run())
    await started.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, TIMEOUT_S)


@pytest.mark.rule("ENG-006")
async def test_a_standby_does_not_take_the_socket_of_a_node_that_answers(tmp_path: Path) -> None:
    owner = NodeProcess(tmp_path / "data")
    try:
        socket_path = await owner.up()
        twin = Node(Config(data=tmp_path / "data", standby=True))  # under the owner's own name
        with pytest.raises(Unavailable, match="give every node a name of its own"):
            await twin.start()
        await twin.stop()
        async with NodeSocket(socket_path) as node:
            assert (await node.status())["role"] == "owner"
            assert (await node.mint(bytes(32), "alice", 1))["is_repeat"] is False
    finally:
        owner.end()


@pytest.mark.rule("ENG-006")
async def test_a_standby_does_not_forward_to_itself(tmp_path: Path) -> None:
    node = Node(Config(data=tmp_path, standby=True))
    elsewhere = str(tmp_path / "node.sock")  # the same path on another machine
    node.follower.state.owner = OwnershipTaken(Term(1), "node", elsewhere)
    with pytest.raises(Unavailable, match="on another machine"):
        await node._forward_to_owner("account.mint", {}, LOCAL)
    await node.stop()


@pytest.mark.rule("ENG-006")
async def test_a_standby_that_is_asked_to_stop_while_it_takes_over_does_not_become_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, opening = Node(Config(data=tmp_path, node="two", standby=True)), asyncio.Event()
    start = node.engine.start

    async def taken() -> None:
        monkeypatch.setattr(node.engine, "start", start)  # at the first look only
        raise Unavailable("ENG-001", "process 7 owns it")

    async def follow() -> None:
        node.access.source = node.follower

    async def open_() -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(node.engine, "start", taken)
    monkeypatch.setattr(node, "_start_following", follow)
    monkeypatch.setattr(node.socket_server, "open", open_)
    await node.start()
    await opening.wait()
    await asyncio.wait_for(node.stop(), TIMEOUT_S)
    assert node._end_task is not None
    assert node._end_task.done()


@pytest.mark.rule("CAN-004")
async def test_a_worker_that_fails_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its reaper a node would end no lease any more, and keep no time."""
    node, begun, again = Node(Config(data=tmp_path)), 0, asyncio.Event()

    async def run(_: Reaper) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise KeyError("an unexpected error")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Reaper, "run_once", run)
    await node.start()
    await asyncio.wait_for(again.wait(), TIMEOUT_S)
    await node.stop()
