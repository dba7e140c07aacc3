"""Evidence from eight channels with real processes: killed, cut, delayed, doubled, reordered; all of it arrives once.

Four channels are providers' and speak `holdfast.evidence.v1`, four speak as v0.1 does. Between them and the node stand
a proxy that treats messages badly and a line that is cut.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.api.grpc.agent_driver import AgentDriver
from tests.counts import counts
from tests.loopback_ports import free_ports
from tests.storage.stores import Place
from tests.stories.cuttable_proxy import CuttableProxy
from tests.stories.faulty_proxy import FAULTS, FaultyProxy
from tests.stories.node_process import NodeProcess, on_postgres
from tests.stories.outbox_process import OutboxProcess

from holdfast.client.node_socket import NodeSocket

SECONDS = counts(2, 60)
"""On each store, at the least; with the full counts there are two."""
CHANNELS = 8
ENOUGH = 100 * CHANNELS
"""Records that are promised at the least, however long a busy machine takes for them."""
SEED = 20261116


class EvidenceRun:
    """The node, what stands before it, and the outboxes."""

    def __init__(self, place: Place, store: str) -> None:
        self.random = Random(SEED)
        port, behind, before = free_ports(3)
        settings = {
            "HOLDFAST_GRPC__ENABLED": "true",
            "HOLDFAST_GRPC__PORT": str(port),
            "HOLDFAST_GRPC__LEGACY_EVIDENCE": "open",
        }
        settings |= on_postgres(place.address) if store == "postgres" else {}
        self.node = NodeProcess(place.folder / "data", "node", settings)
        self.port = port
        self.proxy, self.line = FaultyProxy(behind, port, SEED), CuttableProxy(before, behind)
        self.outboxes = [
            OutboxProcess(place.folder / f"air-{n}", f"air-{n}", before, seed=n + 1 if n % 2 else None)
            for n in range(CHANNELS)
        ]
        self.watermarks: dict[tuple[str, str], int] = {}
        self.broken = {"node": 0, "outbox": 0, "line": 0}
        """How often each has been."""

    async def begin(self) -> None:
        await self.node.up()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            house: Any = SimpleNamespace(channel=channel)
            for each in self.outboxes:
                if each.key is not None:
                    await AgentDriver(house, each.channel[:16], key=each.key).register()
        await self.proxy.open()
        await self.line.open()
        for each in self.outboxes:
            each.up(new_session=True)

    async def disturb(self) -> None:
        """Something breaks: the node, an outbox, or every line."""
        match self.random.randrange(12):
            case 0:
                await self.node_dies()
            case 1 | 2 | 3:
                each = self.random.choice(self.outboxes)
                await asyncio.to_thread(each.kill)
                each.up(new_session=self.random.random() < 0.5)
                self.broken["outbox"] += 1
            case 4 | 5:
                self.line.cut()
                self.broken["line"] += 1
        await asyncio.sleep(self.random.random() / 2)

    async def node_dies(self) -> None:
        """What was acked by then is there when it is up again."""
        acked = {
            (each.channel, session): watermark
            for each in self.outboxes
            for session, watermark in each.acked_so_far().items()
        }
        await self.node.kill()
        await self.node.up()
        self.broken["node"] += 1
        found = await self.check()
        for session, watermark in acked.items():
            assert found.get(session, 0) >= watermark, (
                f"{session}: {watermark} was acked, {found.get(session, 0)} is there"
            )

    @property
    def is_enough(self) -> bool:
        """Everything has been broken and every fault has happened, to a good many records."""
        is_many = sum(each.promised for each in self.outboxes) > ENOUGH
        return (
            is_many
            and min(self.broken.values()) > 1
            and len(self.proxy.done) == len(FAULTS)
            and all(self.proxy.done.values())
        )

    async def check(self) -> dict[tuple[str, str], int]:
        """The node's watermarks; they never go back."""
        async with NodeSocket(self.node.data) as client:
            event = (await client.status())["event"]
            while (await client.status())["tables_as_of"] < event:  # a list is as old as its tables
                await asyncio.sleep(0.01)
            found = (await client.call("evidence.listSessions", channel=None, limit=1_000, cursor=""))["sessions"]
        watermarks = {(each["channel"], each["session"]): each["acked"] for each in found}
        for session, watermark in self.watermarks.items():
            assert watermarks.get(session, 0) >= watermark, f"the watermark of {session} went back"
        self.watermarks = watermarks
        return watermarks

    async def end(self) -> None:
        for each in self.outboxes:
            each.end()
        await self.line.close()
        await self.proxy.close()
        self.node.end()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def stage(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[EvidenceRun]:
    made = EvidenceRun(place, request.param)
    yield made
    await made.end()


@pytest.mark.timeout(900)
@pytest.mark.rule("EVD-001", "EVD-002", "EVD-003", "EVD-004", "EVD-009", "SP-ACK-001", "SP-ACK-004")
async def test_every_event_is_stored_once_and_in_order_and_every_ack_is_true_whatever_breaks(
    stage: EvidenceRun,
) -> None:
    await stage.begin()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or not stage.is_enough:
        await stage.disturb()
    await stage.node_dies()
    stage.proxy.faults = 0.0
    for each in stage.outboxes:
        (each.folder / "enough").touch()
    codes = await asyncio.gather(*(asyncio.to_thread(each.ended) for each in stage.outboxes))
    assert set(codes) == {0}, [(each.channel, code) for each, code in zip(stage.outboxes, codes, strict=True)]
    await stage.check()
    for each in stage.outboxes:
        assert each.went_back == [], "an ack went back"
        await check_complete(stage, each)


async def check_complete(stage: EvidenceRun, outbox: OutboxProcess) -> None:
    """What the outbox called durable is at the node, each record once and where it was."""
    seen = list[str]()
    for session, durable in outbox.durable.items():
        told = [json.loads(line) for line in await stored_records(stage.node, outbox.channel, session)]
        assert [each["sequence"] for each in told] == list(range(1, len(told) + 1)), "a gap or a repetition"
        assert len(told) >= max(durable), "something durable is lost"
        for sequence, token in durable.items():
            assert told[sequence - 1]["payload"]["block_id"] == token
        seen += [each["event_uuid"] for each in told]
    assert len(set(seen)) == len(seen), "stored twice"


async def stored_records(node: NodeProcess, channel: str, session: str) -> list[str]:
    found: list[str] = []
    async with NodeSocket(node.data) as client:
        while True:
            told = {"channel": channel, "session": session, "after": len(found), "limit": 1_000}
            page = await client.call("evidence.listRecords", **told)
            found += page["lines"]
            if len(found) >= page["acked"]:
                return found
