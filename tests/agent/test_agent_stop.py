"""Being told to stop: nothing new is taken, what runs is finished or given back, and the evidence gets its end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.house import comes, folders, made, working
from tests.agent.test_agent_way import gate

from holdfast.agent import hands
from holdfast.core.values import Kind


def last_type(node: FakeNode) -> str:
    session = max(node.evidence)
    return str(json.loads(node.evidence[session][-1])["payload_type"])


@pytest.mark.rule("EVD-005")
async def test_running_work_is_finished_and_the_session_is_ended(node: FakeNode, tmp_path: Path) -> None:
    busy = gate()
    agent = made(node, tmp_path, executors={(Kind.AI, "gate"): busy})
    await agent.start()
    lease = node.offer("hello", "gate")
    await comes(busy.begun.is_set)
    stopping = asyncio.create_task(agent.stop())
    await comes(lambda: any(act.act == "beat" and act.slots == 0 for act in node.acts), "it says that it takes nothing")
    late = node.offer("late")
    await comes(lambda: node.leases[late].over == "STOPPING")
    busy.open.set()
    await stopping
    assert node.submissions[lease] == 1
    assert last_type(node) == "CHANNEL_TERMINATED"
    end = json.loads(node.evidence[max(node.evidence)][-1])["payload"]
    assert end["reason"] == "STOPPED"


async def test_work_that_does_not_end_in_time_is_given_back(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands, "GIVE_BACK_MS", 60_000)
    busy = gate()
    agent = made(node, tmp_path, executors={(Kind.AI, "gate"): busy}, drain_ms=50)
    await agent.start()
    lease = node.offer("hello", "gate")
    await comes(busy.begun.is_set)
    await agent.stop()
    assert node.leases[lease].over == "STOPPING"
    assert busy.cancelled.wait(60)
    assert folders(tmp_path) == []
    assert node.told(lease) == ["LEASE_ACCEPTED", "EXECUTION_STARTED", "BLOCK_FENCE"]
    assert last_type(node) == "CHANNEL_TERMINATED"


async def test_without_a_node_work_stays_on_disk_and_stopping_is_bounded(node: FakeNode, tmp_path: Path) -> None:
    busy = gate()
    agent = made(node, tmp_path, executors={(Kind.AI, "gate"): busy}, drain_ms=50, flush_ms=50)
    await agent.start()
    lease = node.offer("hello", "gate")
    await comes(busy.begun.is_set)
    await node.stop()
    async with asyncio.timeout(30):
        await agent.stop()
    assert folders(tmp_path) == [lease.hex()]
    await node.start()
    busy.open.set()
    async with working(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        await comes(lambda: node.submissions[lease] == 1, "the next start goes on with it")
    assert node.delivered() == {lease: 1}


async def test_an_agent_that_is_stopped_leaves_no_session_behind(node: FakeNode, tmp_path: Path) -> None:
    for _ in range(2):
        agent = made(node, tmp_path)
        await agent.start()
        lease = node.offer(f"hello {len(node.leases)}")
        await comes(lambda lease=lease: node.submissions[lease])  # type: ignore[misc]
        await agent.stop()
    files = list((tmp_path / "spool").rglob("*.spool.jsonl"))
    assert len(files) <= 1, "the first one went when the second began"
