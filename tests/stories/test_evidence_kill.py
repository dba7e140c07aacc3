"""Every ack is true at the moment it is given: the node is killed right after it, and the record is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.counts import counts
from tests.doors.agents import Hand
from tests.doors.legacy_sender import Air
from tests.ports import free_ports
from tests.stories.node import NodeProcess

from holdfast.adapters.keys.signing import SigningKey
from holdfast.client import Client
from holdfast.core.provider.record import provider_id
from holdfast.wire.airline import line_of

ROUNDS = counts(4, 40)


@pytest.fixture
def node(tmp_path: Path) -> Any:
    (port,) = free_ports(1)
    told = {
        "HOLDFAST_GRPC__ENABLED": "true",
        "HOLDFAST_GRPC__PORT": str(port),
        "HOLDFAST_GRPC__LEGACY_EVIDENCE": "open",
    }
    process = NodeProcess(tmp_path / "data", "node", told)
    process.port = port  # type: ignore[attr-defined]
    yield process
    process.end()


@asynccontextmanager
async def dialled(node: Any) -> AsyncIterator[Any]:
    """A house as far as a sender needs one, with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.port}", options=options) as channel:
        yield SimpleNamespace(channel=channel)


async def kept(node: Any, channel: str, session: str) -> list[bytes]:
    found: list[bytes] = []
    async with Client(node.data) as client:
        while True:
            told = {"channel": channel, "session": session, "after": len(found), "limit": 1_000}
            page = await client.call("evidence.getRecords", **told)
            found += [line.encode() for line in page["lines"]]
            if len(found) >= page["acked"]:
                return found


@pytest.mark.rule("EVD-002", "EVD-009")
async def test_a_node_killed_right_after_an_ack_has_the_record(node: Any) -> None:
    random, sent, acked = Random(20261116), 0, 0
    messages: list[Any] = []
    for _ in range(ROUNDS):
        await node.up()
        async with dialled(node) as house:
            air = Air(house)
            stream = await air.greeted(sent)
            assert stream.mark >= acked, "what was acked before the kill is there after it"
            more = random.randrange(1, 60)
            messages += [air.message(sequence) for sequence in range(len(messages) + 1, len(messages) + more + 1)]
            await stream.say(*messages[stream.mark :])
            sent = len(messages)
            until = random.randrange(stream.mark, sent) + 1
            while stream.mark < until:
                stream.mark = (await stream.ack()).acked_sequence
            acked = stream.mark
            await node.kill()
    await node.up()
    found = await kept(node, "classic-1", "PS-1")
    assert acked <= len(found) <= sent
    assert found == [line_of(message) for message in messages[: len(found)]]


@pytest.mark.rule("EVD-001", "EVD-002", "EVD-003")
async def test_the_same_holds_for_signed_batches(node: Any) -> None:
    random, key, acked = Random(20261117), SigningKey.generate(), 0
    lines: list[bytes] = []
    await node.up()
    async with dialled(node) as house:
        await Hand(house, key=key).register()
    for _ in range(ROUNDS):
        async with dialled(node) as house:
            stream = await Hand(house, key=key).tell()
            mark = stream.ack.acked_sequence
            assert mark >= acked
            lines = stream.some(1, len(lines) + random.randrange(1, 400))
            await stream.send(mark + 1, lines[mark:])
            while mark < len(lines):
                mark = (await stream.read("ack")).ack.acked_sequence
                if random.random() < 0.5:
                    break
            acked = mark
            await node.kill()
        await node.up()
    found = await kept(node, provider_id(key.public).hex(), "s1")
    assert len(found) >= acked
    assert found == lines[: len(found)]
