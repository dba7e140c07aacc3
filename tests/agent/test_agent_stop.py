"""Stopping: nothing new is accepted, what runs is finished or declined, and the evidence gets its end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.agent.fake_node import FakeNode
from tests.agent.in_process_agent import lease_dirs, make_agent, running_agent, wait_until
from tests.agent.test_lease_executor import make_gate

from holdfast.agent.leases import active_leases
from holdfast.core.base.values import Kind


def last_type(node: FakeNode) -> str:
    session = max(node.evidence)
    return str(json.loads(node.evidence[session][-1])["payload_type"])


@pytest.mark.rule("EVD-005")
async def test_running_work_is_finished_and_the_session_is_ended(node: FakeNode, tmp_path: Path) -> None:
    busy = make_gate()
    agent = make_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy})
    await agent.start()
    lease = node.offer("hello", "gate")
    await wait_until(busy.started.is_set)
    stopping = asyncio.create_task(agent.stop())
    await wait_until(
        lambda: any(act.act == "beat" and act.slots == 0 for act in node.acts), "it says that it takes nothing"
    )
    late = node.offer("late")
    await wait_until(lambda: node.leases[late].ended_reason == "STOPPING")
    busy.open.set()
    await stopping
    assert node.submissions[lease] == 1
    assert last_type(node) == "CHANNEL_TERMINATED"
    end = json.loads(node.evidence[max(node.evidence)][-1])["payload"]
    assert end["reason"] == "STOPPED"


async def test_work_that_does_not_end_in_time_is_given_back(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_leases, "GIVE_BACK_MS", 60_000)
    busy = make_gate()
    agent = make_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}, drain_ms=50)
    await agent.start()
    lease = node.offer("hello", "gate")
    await wait_until(busy.started.is_set)
    await agent.stop()
    assert node.leases[lease].ended_reason == "STOPPING"
    assert busy.cancelled.wait(60)
    assert lease_dirs(tmp_path) == []
    assert node.record_types(lease) == ["LEASE_ACCEPTED", "BLOCK_FENCE"]
    assert last_type(node) == "CHANNEL_TERMINATED"


async def test_without_a_node_work_stays_on_disk_and_stopping_is_bounded(node: FakeNode, tmp_path: Path) -> None:
    busy = make_gate()
    agent = make_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}, drain_ms=50, flush_ms=50)
    await agent.start()
    lease = node.offer("hello", "gate")
    await wait_until(busy.started.is_set)
    await node.stop()
    async with asyncio.timeout(30):
        await agent.stop()
    assert lease_dirs(tmp_path) == [lease.hex()]
    await node.start()
    busy.open.set()
    async with running_agent(node, tmp_path, executors={(Kind.AI, "gate"): busy}):
        await wait_until(lambda: node.submissions[lease] == 1, "the next start goes on with it")
    assert node.delivered() == {lease: 1}


async def test_an_agent_that_is_stopped_leaves_no_session_behind(node: FakeNode, tmp_path: Path) -> None:
    for _ in range(2):
        agent = make_agent(node, tmp_path)
        await agent.start()
        lease = node.offer(f"hello {len(node.leases)}")
        await wait_until(lambda lease=lease: node.submissions[lease])  # type: ignore[misc]
        await agent.stop()
    files = list((tmp_path / "spool").rglob("*.spool.jsonl"))
    assert len(files) <= 1, "the first one went when the second began"
