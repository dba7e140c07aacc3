"""Own work with real processes: a shell program, a Python function, a server; killed in the middle, and its logs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.loopback_ports import free_port
from tests.storage.stores import Place
from tests.stories.cli_runner import CliNode, holdfast, running_cli_node
from tests.stories.node_process import on_postgres
from tests.stories.own_agent import OwnAgent, answer_chat

from holdfast.client.node_socket import NodeSocket
from holdfast.core.job.input_ref import input_digest

WITHIN_S = 60.0
QUICK_RETRIES = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_POLICY__RETRY__BASE_AI_MS": "20"}


class Story:
    """A node, an agent, and what a requester does."""

    def __init__(self, node: CliNode, agent: OwnAgent, socket: NodeSocket, marks: Path) -> None:
        self.node, self.agent, self.socket, self.marks = node, agent, socket, marks

    async def enqueue(self, raw: bytes, **payload: Any) -> str:
        params = {"payload": payload, "max_fee": 100, "caller": "alice"}
        encoded = base64.b64encode(raw).decode()
        return str((await self.socket.call("cap.enqueue", **params, input=encoded))["task_id"])

    async def shout(self, word: str) -> str:
        return await self.enqueue(b"hello", kind="COMPUTE", spec={"runtime": "shout", "args": [word]})

    async def ended(self, task_id: str) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN_S):
            while True:
                found: dict[str, Any] = await self.socket.call("cap.getJob", task_id=task_id)
                if found["job"]["state"] not in ("QUEUED", "ASSIGNED"):
                    return found
                await asyncio.sleep(0.05)

    async def output(self, task_id: str) -> bytes:
        assert (await self.ended(task_id))["job"]["state"] == "COMPLETED"
        async with self.http() as client, asyncio.timeout(WITHIN_S):
            while (found := await client.get(f"/v1/outputs/{task_id}")).status_code != 200:
                await asyncio.sleep(0.05)
        return found.content

    async def log(self, task_id: str, last_id: str = "") -> AsyncIterator[tuple[str, str]]:
        """Ids and texts, until the job has ended."""
        headers, id_ = {"last-event-id": last_id} if last_id else {}, ""
        path = f"/v1/jobs/{task_id}/logs"
        async with (
            asyncio.timeout(WITHIN_S),
            self.http() as client,
            client.stream("GET", path, headers=headers) as response,
        ):
            assert response.status_code == 200
            async for line in response.aiter_lines():
                id_ = line.removeprefix("id: ") if line.startswith("id: ") else id_
                if line.startswith("data: ") and "text" in line:
                    yield id_, json.loads(line.removeprefix("data: "))["text"]

    def http(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.node.node.data / "http.sock"))
        return httpx.AsyncClient(transport=transport, base_url="http://node", timeout=WITHIN_S)


@pytest.fixture
async def story(place: Place, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Story]:
    marks, grpc = tmp_path / "marks", free_port()
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    environ = on_postgres(place.address) if store == "postgres" else {}
    settings = {**environ, **QUICK_RETRIES, "HOLDFAST_GRPC__PORT": str(grpc)}
    agent, server_port = OwnAgent(tmp_path / "oak", "oak", grpc), free_port()
    agent.describe(f"http://127.0.0.1:{server_port}/v1/chat/completions")
    server = await asyncio.start_server(answer_chat, "127.0.0.1", server_port)
    async with server, running_cli_node(tmp_path, settings) as node, NodeSocket(node.node.data, WITHIN_S) as socket:
        agent.up()
        try:
            async with asyncio.timeout(WITHIN_S):
                while not (found := (await socket.call("aicf.listProviders"))["providers"]):
                    await asyncio.sleep(0.05)
            id_ = found[0]["provider"]["id"]
            assert (await node.run("provider", "stake", id_, 60_000, "--mint")).code == 0
            assert (await node.run("account", "mint", "alice", 100_000)).code == 0
            yield Story(node, agent, socket, marks)
        finally:
            agent.end()


@pytest.mark.rule("JOB-003", "JOB-012", "EVD-005", "EVD-006")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_own_work_ends_once_with_its_output_or_its_reason(story: Story) -> None:
    """Each kind of executor; a program that kills itself once, one that forks, one that calls its input invalid."""
    large = os.urandom(300_000)
    async with story.http() as client:
        put = await client.put(f"/v1/inputs/{input_digest(large).hex()}?caller=alice", content=large)
        assert put.status_code == 201
    ref = {"digest": input_digest(large).hex(), "size": len(large), "media_type": "application/octet-stream"}
    params = {"payload": {"kind": "COMPUTE", "spec": {"runtime": "double"}, "input": ref}, "max_fee": 100}
    doubled = str((await story.socket.call("cap.enqueue", **params, caller="alice"))["task_id"])
    plain, once, fork = [await story.shout(word) for word in ("plain", "once", "fork")]
    chat = await story.enqueue(b'{"messages": [0.5]}', kind="AI", spec={"model": "chat"})
    for task, expected in ((plain, b"HELLO"), (once, b"HELLO"), (fork, b"HELLO"), (doubled, large * 2)):
        assert await story.output(task) == expected
    assert await story.output(chat) == b'data: {"messages": [0.5]}\n\n'
    assert [lease["reason"] for lease in (await story.ended(once))["attempts"]][:1] == ["PROVIDER_FAIL"]
    assert len((await story.ended(plain))["attempts"]) == 1
    bad = await story.shout("bad")
    async with asyncio.timeout(WITHIN_S):
        while not (await story.socket.call("cap.getJob", task_id=bad))["attempts"][-1:]:
            await asyncio.sleep(0.05)
    await story.node.run("job", "cancel", bad)


@pytest.mark.rule("EVD-005", "EVD-006", "JOB-010")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_work_of_a_killed_agent_is_done_again_and_its_progress_is_read_live(story: Story) -> None:
    task = await story.shout("wait")
    async with asyncio.timeout(WITHIN_S):
        while not (story.marks / "waiting").exists():
            await asyncio.sleep(0.05)
    assert (await asyncio.to_thread(holdfast, "agent", "status", "--data", story.agent.data)).code == 0
    said: list[str] = []
    async with story.http() as client, client.stream("GET", f"/v1/jobs/{task}/logs") as logs, asyncio.timeout(WITHIN_S):
        async for line in logs.aiter_lines():
            said.append(line)
            if "begun" in line and not (story.marks / "go").exists():
                story.agent.kill()
                (story.marks / "go").touch()
                story.agent.up()
    assert "id: 0:0" in said
    assert 'data: {"attempt":0,"sequence":0,"text":"begun","percent":10}' in said
    assert "event: end" in said
    assert await story.output(task) == b"HELLO"
    assert len((await story.ended(task))["attempts"]) == 1
    async with httpx.AsyncClient(base_url=story.node.url, timeout=WITHIN_S) as stranger:
        assert (await stranger.get(f"/v1/jobs/{task}/logs")).status_code == 401
    drained = await asyncio.to_thread(holdfast, "agent", "drain", "--data", story.agent.data)
    assert drained.code == 0, drained.err
    assert await story.agent.ended() == 0


@pytest.mark.rule("EVD-005", "JOB-010", "ENG-006")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
async def test_a_log_is_whole_and_goes_on_behind_the_last_id_though_the_node_is_killed(story: Story) -> None:
    task, seen = await story.shout("talk"), list[tuple[str, str]]()
    expected = ["begun", *(f"before {n}" for n in range(1, 7)), *(f"after {n}" for n in range(1, 4))]
    with suppress(httpx.TransportError):
        async for entry in story.log(task):
            seen.append(entry)
            if len(seen) == 4:
                await story.node.node.kill()
                break
    await story.node.node.up()
    (story.marks / "go").touch()
    seen += [entry async for entry in story.log(task, seen[-1][0])]
    assert [text for _, text in seen] == expected
    assert [id_ for id_, _ in seen] == [f"0:{n}" for n in range(10)]
    assert [entry async for entry in story.log(task)] == seen
    printed = await story.node.run("job", "logs", task)
    assert printed.out.splitlines() == [" 10 %  begun", *expected[1:]]
    assert await story.output(task) == b"HELLO"
    async with httpx.AsyncClient(base_url=story.node.url, timeout=WITHIN_S) as stranger:
        assert (await stranger.get(f"/v1/jobs/{task}/logs")).status_code == 401
