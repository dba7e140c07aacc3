"""The live overview: all of it at first, then what changed; for whoever may read it, and bounded (SEC-002, OBS-001)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_node, name_of
from tests.api.http.test_sse import SseStream
from tests.core.blocks import SEAL

from holdfast.api.dashboard import live
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.errors import Unavailable
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("OBS-001")


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.01)


@asynccontextmanager
async def watching(node: HttpNode, token: str | None = None) -> AsyncIterator[SseStream]:
    async with node.client(token) as client, client.stream("GET", live.PATH) as response:
        assert response.status_code == 200, await response.aread()
        yield SseStream(response)


async def next_overview(stream: SseStream) -> dict[str, Any]:
    while True:
        if (block := await stream.block()).get("event") == "overview":
            return dict(json.loads(block["data"]))


async def test_a_viewer_gets_everything_first_and_then_what_changed() -> None:
    async with http_node() as node, watching(node) as stream:
        first = await next_overview(stream)
        assert {"verdict", "alerts", "chain", "queue", "fleet", "providers", "evidence", "archive"} <= first.keys()
        await node.engine.submit(SEAL)
        later = await next_overview(stream)
        assert later["chain"]["head"] == first["chain"]["head"] + 1
        assert "evidence" not in later, "it has not changed"


async def test_the_same_overview_answers_a_call() -> None:
    async with http_node() as node:
        answer = (await node.call("node.getOverview")).json()["result"]
        assert answer["verdict"] == "Nothing needs a hand."
        assert answer["chain"]["head"] == 0


async def test_nothing_is_read_while_no_page_is_open() -> None:
    async with http_node() as node:
        seen = node.server._live
        async with watching(node) as stream:
            await next_overview(stream)
        for _ in range(1_000):
            if not seen.viewers and len(seen._tasks) == 1:
                break
            await asyncio.sleep(0.01)
        assert [task.get_name() for task in seen._tasks] == ["dashboard-samples"]


async def test_what_is_encoded_is_encoded_once_for_all_viewers() -> None:
    async with http_node() as node:
        overview = live.LiveOverview(node.access)
        assert await overview.refresh()
        first, second = overview.delta(0), overview.delta(0)
        assert first is second
        assert not await overview.refresh(), "nothing has changed"
        assert overview.delta(overview.tick) == b""


@pytest.mark.rule("SEC-002")
async def test_without_public_reads_a_key_is_needed() -> None:
    async with http_node(public_reads=False) as node:
        async with node.client() as client:
            assert name_of(await client.get(live.PATH)) == "Unauthorized"
        async with watching(node, await node.token(Role.AUDITOR)) as stream:
            assert await next_overview(stream)


@pytest.mark.rule("SEC-001")
async def test_pages_are_bounded_in_number() -> None:
    async with http_node(subscribers_max=1) as node, watching(node) as stream:
        await next_overview(stream)
        async with node.client() as client:
            assert name_of(await client.get(live.PATH)) == "Unavailable"


async def test_a_viewer_of_a_node_that_does_not_answer_hears_that_the_server_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: NodeAccess) -> None:
        raise Unavailable("ENG-002", "the disk is gone")

    async with http_node() as node, watching(node) as stream:
        await next_overview(stream)
        monkeypatch.setattr(live, "node_summary", fail)
        while (block := await stream.block()).get("event") != "still" or json.loads(block["data"])["fault"] is None:
            pass
        assert json.loads(block["data"]) == {"fault": "ENG-002"}


async def test_closing_the_server_ends_its_viewers() -> None:
    async with http_node() as node, watching(node) as stream:
        await next_overview(stream)
        closing = asyncio.create_task(node.server.close())
        while await stream.block():
            pass
        await closing
