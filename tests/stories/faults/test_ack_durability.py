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
from tests.api.evidence.retrovue_sender import RetrovueSender
from tests.api.grpc.agent_driver import AgentDriver
from tests.counts import counts
from tests.loopback_ports import free_ports
from tests.stories.node_process import NodeProcess

from holdfast.adapters.keys.signing import SigningKey
from holdfast.client.node_socket import NodeSocket
from holdfast.core.provider.model import provider_id
from holdfast.wire.retrovue_codec import line_of

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
async def connect(node: Any) -> AsyncIterator[Any]:
    """A house as far as a sender needs one, with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.port}", options=options) as channel:
        yield SimpleNamespace(channel=channel)


async def stored_records(node: Any, channel: str, session: str) -> list[bytes]:
    found: list[bytes] = []
    async with NodeSocket(node.data) as client:
        while True:
            told = {"channel": channel, "session": session, "after": len(found), "limit": 1_000}
            page = await client.call("evidence.listRecords", **told)
            found += [line.encode() for line in page["lines"]]
            if len(found) >= page["acked"]:
                return found


@pytest.mark.rule("EVD-002", "EVD-009")
async def test_a_node_killed_right_after_an_ack_has_the_record(node: Any) -> None:
    random, sent, acked = Random(20261116), 0, 0
    messages: list[Any] = []
    for _ in range(ROUNDS):
        await node.up()
        async with connect(node) as house:
            air = RetrovueSender(house)
            stream = await air.connect_with_hello(sent)
            assert stream.acked_sequence >= acked, "what was acked before the kill is there after it"
            more = random.randrange(1, 60)
            messages += [air.message(sequence) for sequence in range(len(messages) + 1, len(messages) + more + 1)]
            await stream.send(*messages[stream.acked_sequence :])
            sent = len(messages)
            until = random.randrange(stream.acked_sequence, sent) + 1
            while stream.acked_sequence < until:
                stream.acked_sequence = (await stream.ack()).acked_sequence
            acked = stream.acked_sequence
            await node.kill()
    await node.up()
    found = await stored_records(node, "classic-1", "PS-1")
    assert acked <= len(found) <= sent
    assert found == [line_of(message) for message in messages[: len(found)]]


@pytest.mark.rule("EVD-001", "EVD-002", "EVD-003")
async def test_the_same_holds_for_signed_batches(node: Any) -> None:
    random, key, acked = Random(20261117), SigningKey.generate(), 0
    lines: list[bytes] = []
    await node.up()
    async with connect(node) as house:
        await AgentDriver(house, key=key).register()
    for _ in range(ROUNDS):
        async with connect(node) as house:
            stream = await AgentDriver(house, key=key).open_evidence()
            watermark = stream.ack.acked_sequence
            assert watermark >= acked
            lines = stream.progress_lines(1, len(lines) + random.randrange(1, 400))
            await stream.send(watermark + 1, lines[watermark:])
            while watermark < len(lines):
                watermark = (await stream.read("ack")).ack.acked_sequence
                if random.random() < 0.5:
                    break
            acked = watermark
            await node.kill()
        await node.up()
    found = await stored_records(node, provider_id(key.public).hex(), "s1")
    assert len(found) >= acked
    assert found == lines[: len(found)]
