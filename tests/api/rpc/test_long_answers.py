"""Long answers (SEC-002): proofs and lists are made one after the other, a slice at a time, and others in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api.http.http_node import WITHIN_S, HttpNode, http_node
from tests.api.result_node import result_node
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, RpcNode, rpc_node

from holdfast.api.http import event_fanout
from holdfast.api.http.event_fanout import EventFanout, EventFrame, Subscriber
from holdfast.api.node_access import ANONYMOUS
from holdfast.api.rpc import jsonrpc
from holdfast.api.rpc.params import to_json
from holdfast.core.job.model import Job

pytestmark = pytest.mark.rule("SEC-002")
JOBS = 12
SOME_TURNS = 50
"""More than any answer needs that does not wait for others."""


async def many_jobs(node: RpcNode) -> None:
    await node.mint()
    for number in range(JOBS):
        payload = {"kind": "AI", "spec": {"model": "m", "prompt": f"{number}"}}
        await node.ask(ALICE, "cap.enqueue", payload=payload, max_fee=1)
    await node.engine.wait_tables()


async def test_a_long_list_is_shown_a_slice_at_a_time_and_one_list_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []

    def shown(value: object) -> Any:
        if isinstance(value, Job):
            steps.append("row")
        return to_json(value)

    async def others() -> None:
        while True:
            steps.append("others")
            await asyncio.sleep(0)

    async with rpc_node() as node:
        await many_jobs(node)
        monkeypatch.setattr(jsonrpc, "ROWS_SLICE", 3)
        monkeypatch.setattr(jsonrpc, "to_json", shown)
        between = asyncio.create_task(others())
        lists = await asyncio.gather(*(node.ask(AUDITOR, "cap.listJobs") for _ in range(3)))
        between.cancel()
    assert [len(each["rows"]) for each in lists] == [JOBS] * 3
    runs = [len(run) for run in "".join("r" if step == "row" else " " for step in steps).split()]
    assert runs == [3] * (3 * JOBS // 3), "never two slices without others in between"


async def test_proofs_wait_for_their_turn() -> None:
    async with result_node() as here:
        job, node = (await here.readable(b"output")).hex(), RpcNode(here.world, here.access)
        asked: dict[str, dict[str, object]] = {
            "chain.getBlock": {"height": 1},
            "chain.proveAdmission": {"task_id": job},
            "chain.proveConsistency": {"first": 1, "second": 2},
            "cap.proveResult": {"task_id": job},
        }
        async with here.access.long_turn:
            waiting = [asyncio.create_task(node.ask(ANONYMOUS, name, **params)) for name, params in asked.items()]
            for _ in range(SOME_TURNS):
                await asyncio.sleep(0)
            assert [name for name, task in zip(asked, waiting, strict=True) if task.done()] == []
            await node.ask(ANONYMOUS, "node.getStatus")  # which others do not notice
        await asyncio.gather(*waiting)


async def test_old_events_are_read_by_one_subscriber_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fanout, "FRAMES_PER_READ", 3)
    read, reading, at_most = EventFanout._frames_from_journal, 0, 0

    async def counted(fanout: EventFanout, subscriber: Subscriber) -> list[EventFrame]:
        nonlocal reading, at_most
        reading += 1
        at_most = max(at_most, reading)
        await asyncio.sleep(0)
        frames = await read(fanout, subscriber)
        reading -= 1
        return frames

    monkeypatch.setattr(EventFanout, "_frames_from_journal", counted)
    async with http_node() as node, asyncio.timeout(WITHIN_S):
        token = await node.token()
        await node.mint(*range(20))
        await asyncio.gather(*(_follow(node, token) for _ in range(4)))
    assert at_most == 1


async def _follow(node: HttpNode, token: str) -> None:
    """Events from the first one on, until all that a client has asked for have come."""
    async with node.client(token) as client, client.stream("GET", "/events?after=0") as got:
        text = ""
        async for part in got.aiter_text():
            text += part
            if "id: 20\n" in text:
                return
