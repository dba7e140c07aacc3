"""`PUT /v1/inputs/{digest}`: an input is uploaded in parts, resumed, and usable by the account that uploaded it."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_node
from tests.simulation.world import SimulatedClock

from holdfast.adapters.inputs.input_store import InputStore
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.job.input_ref import INLINE_BYTES_MAX, input_digest
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("JOB-003", "JOB-010")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[HttpNode]:
    async with http_node() as made:
        made.access.inputs = InputStore(tmp_path / "inputs", SimulatedClock(), free_bytes_min=0)
        for number, account in enumerate(("alice", "bob")):
            await made.engine.submit(Mint(bytes([number + 1]) * 32, AccountId(account), Amount(10_000)))
        yield made


def path(raw: bytes) -> str:
    return f"/v1/inputs/{input_digest(raw).hex()}"


def payload(raw: bytes) -> dict[str, Any]:
    ref = {"digest": input_digest(raw).hex(), "size": len(raw), "media_type": "text/plain"}
    return {"kind": "COMPUTE", "spec": {"runtime": "wc"}, "input": ref}


async def enqueue(node: HttpNode, token: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await node.call("cap.enqueue", token, max_fee=10, **params)).json()
    return answer


async def test_parts_are_uploaded_resumed_and_used_by_their_account_alone(node: HttpNode) -> None:
    raw = os.urandom(2_500_000)
    alice, bob = await node.token(Role.REQUESTER), await node.token(Role.REQUESTER, account=AccountId("bob"))
    async with node.client(alice) as client:
        early = await enqueue(node, alice, payload=payload(raw))
        assert early["error"]["data"]["name"] == "NotFound"
        first = await client.put(path(raw), content=raw[:999], headers={"content-range": "bytes 0-998/2500000"})
        assert (first.status_code, first.headers["upload-offset"]) == (202, "999")
        wrong = await client.put(path(raw), content=raw[:9], headers={"content-range": "bytes 0-8/2500000"})
        assert (wrong.status_code, wrong.headers["upload-offset"]) == (409, "999")
        head = await client.head(path(raw))
        assert (head.status_code, head.headers["upload-offset"], head.headers["upload-complete"]) == (202, "999", "?0")
        last = await client.put(path(raw), content=raw[999:], headers={"content-range": "bytes 999-2499999/2500000"})
        assert (last.status_code, last.headers["upload-complete"]) == (201, "?1")
    assert "result" in await enqueue(node, alice, payload=payload(raw))
    async with node.client(bob) as client:
        assert (await client.head(path(raw))).headers["upload-offset"] == "0"
        stolen = await enqueue(node, bob, payload=payload(raw))
        assert stolen["error"]["data"]["name"] == "NotFound"
        assert (await client.put(path(raw), content=raw)).status_code == 201
    assert "result" in await enqueue(node, bob, payload=payload(raw))
    job = next(iter(node.engine.undurable_state.queue.jobs.values()))
    assert job.input_digest == input_digest(raw)
    assert node.engine.undurable_state.queue.input_uses == {input_digest(raw): 2}


async def test_a_small_input_goes_with_its_job_and_never_into_the_payload(node: HttpNode) -> None:
    token, raw = await node.token(Role.REQUESTER), os.urandom(INLINE_BYTES_MAX)
    encoded = base64.b64encode(raw).decode()
    bare = {"kind": "AI", "spec": {"model": "oak"}}
    made = await enqueue(node, token, payload=bare | {"input": {"media_type": "image/png"}}, input=encoded)
    shown = (await node.call("cap.getJob", token, task_id=made["result"]["task_id"])).json()["result"]["payload"]
    ref = {"digest": input_digest(raw).hex(), "size": len(raw), "media_type": "image/png"}
    assert shown == bare | {"input": ref}
    more = base64.b64encode(raw + b"?").decode()
    refused = {
        "TooLarge": {"payload": bare, "input": more},
        "InvalidParams": {"payload": bare | {"input": {"size": 1}}, "input": encoded},
    }
    for name, params in refused.items():
        assert (await enqueue(node, token, **params))["error"]["data"]["name"] == name
    assert (await enqueue(node, token, payload=bare, input="?"))["error"]["data"]["name"] == "InvalidParams"
    lying = {"payload": payload(raw) | {"input": ref | {"size": 1}}}
    assert (await enqueue(node, token, **lying))["error"]["data"]["name"] == "InvalidParams"
    assert len(node.engine.undurable_state.queue.jobs) == 1


@pytest.mark.rule("SEC-002")
async def test_without_a_key_of_a_requester_nothing_is_uploaded(node: HttpNode) -> None:
    async with node.client() as client:
        assert (await client.put(path(b"x"), content=b"x")).status_code == 401
    async with node.client(await node.token(Role.AUDITOR)) as client:
        assert (await client.put(path(b"x"), content=b"x")).status_code == 403
    async with node.client(await node.token(Role.REQUESTER)) as client:
        assert (await client.put(path(b"x") + "?caller=bob", content=b"x")).status_code == 403
        assert (await client.put("/v1/inputs/nothing", content=b"x")).status_code == 400
        assert (await client.put(path(b"x"), content=b"y")).status_code == 400
        bad = {"content-range": "bytes 5-4/9"}
        assert (await client.put(path(b"x"), content=b"y", headers=bad)).status_code == 400
        huge = {"content-range": f"bytes 0-0/{(1 << 30) + 1}"}
        assert (await client.put(path(b"x"), content=b"y", headers=huge)).status_code == 413
    async with node.client(await node.token(Role.OPERATOR)) as client:
        assert (await client.put(path(b"x"), content=b"x")).status_code == 400
        assert (await client.put(path(b"x") + "?caller=bob", content=b"x")).status_code == 201
