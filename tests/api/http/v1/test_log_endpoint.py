"""The log of a job over HTTP: a stream that ends, after which its client goes on (EVD-005)."""

from __future__ import annotations

import pytest
from tests.api.http.http_node import http_node, request

pytestmark = pytest.mark.rule("RPC-001")
JOB = {"kind": "AI", "spec": {"model": "m", "prompt": "hi"}}


async def test_a_stream_that_has_ended_closes_its_connection_and_the_next_call_is_answered() -> None:
    async with http_node() as node, node.client(await node.token()) as client:
        await node.mint(1)
        asked = request("cap.enqueue", payload=JOB, max_fee=1, caller="alice")
        task = (await client.post("/rpc", json=asked)).json()["result"]["task_id"]
        for _ in range(3):
            log = await client.get(f"/v1/jobs/{task}/logs", params={"follow": "false"})
            assert (log.status_code, log.headers["connection"]) == (200, "close")
            assert "result" in (await client.post("/rpc", json=request("node.getStatus"))).json()
