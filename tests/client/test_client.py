"""What a requester imports: answers of any size that a node gives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from holdfast.client.node_socket import NodeSocket

pytestmark = pytest.mark.rule("RPC-001")


async def test_an_answer_is_longer_than_any_question_may_be(tmp_path: Path) -> None:
    """A prompt of control characters is six times as long in JSON: what was taken in can also be shown."""
    payload = {"kind": "AI", "spec": {"model": "echo", "prompt": "\x01" * 1_000_000}}

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        writer.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"payload": payload}}).encode() + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(node, tmp_path / "node.sock")
    async with server, NodeSocket(tmp_path) as client:
        assert (await client.job("00" * 32))["payload"] == payload
