"""The log of a job over HTTP: a stream that ends, after which its client goes on (EVD-005)."""

from __future__ import annotations

import json

import pytest
from tests.api.http.http_node import http_node, request

from holdfast.core.base.values import AccountId
from holdfast.core.key.model import Role

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


@pytest.mark.rule("JOB-010", "SEC-002")
async def test_a_log_is_for_the_keys_of_its_caller_for_operators_and_for_auditors() -> None:
    async with http_node() as node:
        await node.mint(1)
        operator, auditor = await node.token(), await node.token(Role.AUDITOR)
        asked = request("cap.enqueue", payload=JOB, max_fee=1, caller="alice")
        task = (await node.post(json.dumps(asked).encode(), operator)).json()["result"]["task_id"]
        own, other = await node.token(Role.REQUESTER), await node.token(Role.REQUESTER, account=AccountId("bob"))
        provider = await node.token(Role.PROVIDER, account=AccountId("oak"))
        readers = {own: 200, operator: 200, auditor: 200, other: 404, provider: 403, None: 401}
        for token, status in readers.items():
            async with node.client(token) as client:
                log = await client.get(f"/v1/jobs/{task}/logs", params={"follow": "false"})
            assert log.status_code == status, (token, log.text)
