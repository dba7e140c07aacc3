"""Providers that wait cost a connection and a few small objects: no timer, no poll, no event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.doors.agents import Hand, housed

IDLE = 60


def timers() -> int:
    """What the event loop would wake up for by itself."""
    loop: Any = asyncio.get_running_loop()
    return sum(not handle.cancelled() for handle in loop._scheduled)


@pytest.mark.rule("MAT-007")
async def test_a_provider_that_waits_has_no_timer_and_writes_nothing_and_one_task_follows_for_all(
    tmp_path: Path,
) -> None:
    async with housed(tmp_path) as house:
        one = await Hand(house, "first").at_work()
        hands = [Hand(house, f"p{number}") for number in range(IDLE)]
        before = timers()
        streams = [await hand.at_work() for hand in hands]
        followers = [task for task in asyncio.all_tasks() if task.get_name() == "switchboard"]
        events, tasks = house.engine.durable.last, asyncio.all_tasks()
        for _ in range(50):
            await asyncio.sleep(0)
        assert timers() <= before + 1, "none of sixty has one"
        assert len(followers) == 1
        assert house.engine.durable.last == events, "waiting does nothing"
        assert asyncio.all_tasks() <= tasks, "and begins nothing"
        for stream in (one, *streams):
            stream.call.cancel()
