"""Providers that wait cost a connection and a few small objects: no timer, no poll, no event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.api.grpc.agent_driver import AgentDriver, agent_node

IDLE = 60


def timers() -> int:
    """What the event loop would wake up for by itself."""
    loop: Any = asyncio.get_running_loop()
    return sum(not handle.cancelled() for handle in loop._scheduled)


@pytest.mark.rule("MAT-007")
async def test_a_provider_that_waits_has_no_timer_and_writes_nothing_and_one_task_follows_for_all(
    tmp_path: Path,
) -> None:
    async with agent_node(tmp_path) as node:
        one = await AgentDriver(node, "first").start_work()
        agents = [AgentDriver(node, f"p{number}") for number in range(IDLE)]
        before = timers()
        streams = [await agent.start_work() for agent in agents]
        followers = [task for task in asyncio.all_tasks() if task.get_name() == "agent router"]
        events, tasks = node.engine.durable_head.last, asyncio.all_tasks()
        for _ in range(50):
            await asyncio.sleep(0)
        assert timers() <= before + 1, "none of sixty has one"
        assert len(followers) == 1
        assert node.engine.durable_head.last == events, "waiting does nothing"
        assert asyncio.all_tasks() <= tasks, "and begins nothing"
        for stream in (one, *streams):
            stream.call.cancel()
