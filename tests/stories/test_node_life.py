"""The life of a node around its engine: told to stop while it starts, neighbours, and duties that fail."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from pathlib import Path

import pytest
from tests.stories.node import NodeProcess

from holdfast.app import Node
from holdfast.client import Client
from holdfast.config import Config
from holdfast.core.event import OwnershipTaken
from holdfast.core.refusal import Unavailable
from holdfast.core.values import Epoch
from holdfast.doors.desk import LOCAL
from holdfast.duties.reaper import Reaper

NOBODY_NEEDS_SO_LONG_S = 60


@pytest.fixture(autouse=True)
def _collector_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node freezes what it has loaded; the process that tests goes on for long after it."""
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "set_threshold", lambda _: None)


@pytest.mark.rule("ENG-002")
async def test_a_node_that_is_told_to_stop_while_it_starts_stops(
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
    await asyncio.wait_for(running, NOBODY_NEEDS_SO_LONG_S)


@pytest.mark.rule("ENG-006")
async def test_a_standby_does_not_take_the_socket_of_a_node_that_answers(tmp_path: Path) -> None:
    owner = NodeProcess(tmp_path / "data")
    try:
        door = await owner.up()
        twin = Node(Config(data=tmp_path / "data", standby=True))  # under the owner's own name
        with pytest.raises(Unavailable, match="give every node a name of its own"):
            await twin.start()
        await twin.stop()
        async with Client(door) as node:
            assert (await node.status())["role"] == "owner"
            assert (await node.mint(bytes(32), "alice", 1))["is_repeat"] is False
    finally:
        owner.end()


@pytest.mark.rule("ENG-006")
async def test_a_standby_does_not_hand_on_to_itself(tmp_path: Path) -> None:
    node = Node(Config(data=tmp_path, standby=True))
    elsewhere = str(tmp_path / "node.sock")  # the same path on another machine
    node.follower.state.owner = OwnershipTaken(Epoch(1), "node", elsewhere)
    with pytest.raises(Unavailable, match="on another machine"):
        await node._hand_on("account.mint", {}, LOCAL)
    await node.stop()


@pytest.mark.rule("ENG-006")
async def test_a_standby_that_is_told_to_stop_while_it_takes_over_does_not_become_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, opening = Node(Config(data=tmp_path, node="two", standby=True)), asyncio.Event()
    start = node.engine.start

    async def taken() -> None:
        monkeypatch.setattr(node.engine, "start", start)  # at the first look only
        raise Unavailable("ENG-001", "process 7 owns it")

    async def follow() -> None:
        node.desk.source = node.follower

    async def open_() -> None:
        opening.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(node.engine, "start", taken)
    monkeypatch.setattr(node, "_follow", follow)
    monkeypatch.setattr(node.door, "open", open_)
    await node.start()
    await opening.wait()
    await asyncio.wait_for(node.stop(), NOBODY_NEEDS_SO_LONG_S)
    assert node._ending is not None
    assert node._ending.done()


@pytest.mark.rule("CAN-004")
async def test_a_duty_that_fails_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its reaper a node would end no lease any more, and keep no time."""
    node, begun, again = Node(Config(data=tmp_path)), 0, asyncio.Event()

    async def run(_: Reaper) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise KeyError("nobody thought of this")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Reaper, "run", run)
    await node.start()
    await asyncio.wait_for(again.wait(), NOBODY_NEEDS_SO_LONG_S)
    await node.stop()
