"""`GET /v1/outputs/{task_id}`: bytes for whoever may read them, checked, whole or in ranges, on any network."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.api.http.http_node import HttpNode, http_server, name_of
from tests.api.result_node import SERVING, ResultNode, result_node

from holdfast.adapters.warm_store import WarmStore, path_of
from holdfast.api.http.v1.output_endpoint import PART_BYTES
from holdfast.core.base.values import AccountId, TaskId
from holdfast.core.key.model import Role
from holdfast.core.policy import ResultPolicy
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("RES-009", "JOB-010", "SEC-002")
OUTPUT = bytes(range(256)) * 4


@pytest.fixture
async def results(tmp_path: Path) -> AsyncIterator[ResultNode]:
    async with result_node() as made:
        made.access.blobs = WarmStore(tmp_path / "warm")
        yield made


@pytest.fixture
async def node(results: ResultNode) -> AsyncIterator[HttpNode]:
    async with http_server(results.access, results.world) as server:
        yield HttpNode(results.world, results.engine, results.access, server)


async def readable(results: ResultNode, output: bytes = OUTPUT) -> TaskId:
    """A result that can be read, and the node holds its bytes."""
    assert results.access.blobs is not None
    incoming = await results.access.blobs.receive()
    await incoming.write(output)
    await incoming.keep()
    return await results.readable(output)


def path(task: TaskId) -> str:
    return f"/v1/outputs/{task.hex()}"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1])
async def test_the_caller_reads_the_whole_output(results: ResultNode, node: HttpNode, size: int) -> None:
    output = os.urandom(size)
    task = await readable(results, output)
    async with node.client(await node.token(Role.REQUESTER)) as client:
        answer = await client.get(path(task))
        head = await client.head(path(task))
    assert (answer.status_code, answer.content) == (200, output)
    assert answer.headers["etag"] == f'"{result_digest(output).hex()}"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(size))


async def test_an_output_has_the_media_type_that_its_agent_declared(results: ResultNode, node: HttpNode) -> None:
    assert results.access.blobs is not None
    await results.access.blobs.put_many({result_digest(b"{}"): b"{}"})
    job, _ = await results.submission(b"{}")
    await results.finish(results.proof(job, b"{}", "application/json"))
    await results.seal()
    async with node.client(await node.token(Role.REQUESTER)) as client:
        assert (await client.get(path(job))).headers["content-type"] == "application/json"


async def test_a_small_output_is_read_from_the_file_of_small_outputs(results: ResultNode, node: HttpNode) -> None:
    assert results.access.blobs is not None
    await results.access.blobs.put_many({result_digest(b"small"): b"small"})
    task = await results.readable(b"small")
    async with node.client(await node.token(Role.REQUESTER)) as client:
        assert (await client.get(path(task))).content == b"small"


@pytest.mark.parametrize(
    ("wanted", "status", "first", "last"),
    [
        ("bytes=0-0", 206, 0, 0),
        ("bytes=10-19", 206, 10, 19),
        ("bytes=1000-", 206, 1_000, 1_023),
        ("bytes=-24", 206, 1_000, 1_023),
        ("bytes=-5000", 206, 0, 1_023),
        ("bytes=1023-9999", 206, 1_023, 1_023),
        ("bytes=0-1,5-6", 200, 0, 1_023),
        ("bytes=5-4", 200, 0, 1_023),
        ("bytes=-", 200, 0, 1_023),
        ("lines=1-2", 200, 0, 1_023),
    ],
)
async def test_a_range_is_sent_where_it_is_one_that_can_be_sent(
    results: ResultNode, node: HttpNode, wanted: str, status: int, first: int, last: int
) -> None:
    task = await readable(results)
    async with node.client(await node.token()) as client:
        answer = await client.get(path(task), headers={"range": wanted})
    assert (answer.status_code, answer.content) == (status, OUTPUT[first : last + 1])
    expected = f"bytes {first}-{last}/1024" if status == 206 else None
    assert answer.headers.get("content-range") == expected


async def test_a_range_beyond_the_end_cannot_be_sent(results: ResultNode, node: HttpNode) -> None:
    task = await readable(results)
    async with node.client(await node.token()) as client:
        for wanted in ("bytes=1024-", "bytes=-0"):
            answer = await client.get(path(task), headers={"range": wanted})
            assert (answer.status_code, answer.content) == (416, b"")
            assert answer.headers["content-range"] == "bytes */1024"


async def test_conditions_compare_the_digest(results: ResultNode, node: HttpNode) -> None:
    task = await readable(results)
    etag = f'"{result_digest(OUTPUT).hex()}"'
    async with node.client(await node.token()) as client:
        same = await client.get(path(task), headers={"if-none-match": f'"x", W/{etag}'})
        other = await client.get(path(task), headers={"if-none-match": '"x"'})
        resumed = await client.get(path(task), headers={"range": "bytes=1000-", "if-range": etag})
        changed = await client.get(path(task), headers={"range": "bytes=1000-", "if-range": '"x"'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert [each.status_code for each in (other, resumed, changed)] == [200, 206, 200]


@pytest.mark.rule("SEC-001")
async def test_an_output_is_for_its_caller_its_provider_operators_and_auditors(
    results: ResultNode, node: HttpNode
) -> None:
    task = await readable(results)
    oak, bob = {"account": AccountId("oak")}, {"account": AccountId("bob")}
    asked = {
        "caller": await node.token(Role.REQUESTER),
        "provider": await node.token(Role.PROVIDER, **oak),
        "operator": await node.token(Role.OPERATOR),
        "auditor": await node.token(Role.AUDITOR),
        "other requester": await node.token(Role.REQUESTER, **bob),
        "other provider": await node.token(Role.PROVIDER, **bob),
        "of the provider's account": await node.token(Role.REQUESTER, **oak),
        "out of scope": await node.token(Role.OPERATOR, scopes=("cap.getResult",)),
        "in scope": await node.token(Role.OPERATOR, scopes=("cap.readOutput",)),
        "anonymous": None,
    }
    statuses = {}
    for who, token in asked.items():
        async with node.client(token) as client:
            answer = await client.get(path(task))
        statuses[who] = answer.status_code
        assert (answer.content == OUTPUT) == (answer.status_code == 200)
    allowed = {"caller", "provider", "operator", "auditor", "in scope"}
    assert {who for who, status in statuses.items() if status == 200} == allowed
    assert set(statuses.values()) <= {200, 401, 403}
    assert statuses["anonymous"] in (401, 403)


@pytest.mark.rule("RES-007", "RET-004")
async def test_what_cannot_be_read_is_refused_by_name(results: ResultNode, node: HttpNode) -> None:
    waiting, open_, pruned = await results.pending(), None, None
    pruned = await results.readable(b"never held")
    open_ = await results.resolved()
    expected = {
        path(waiting): (409, "NoResultYet"),
        path(open_): (409, "NoResultYet"),
        path(pruned): (410, "ResultPruned"),
        path(TaskId(bytes(32))): (404, "NotFound"),
        "/v1/outputs/": (400, "InvalidParams"),
        "/v1/outputs/" + "G" * 64: (400, "InvalidParams"),
        path(pruned) + "/more": (400, "InvalidParams"),
    }
    async with node.client(await node.token(Role.REQUESTER)) as client:
        for where, outcome in expected.items():
            answer = await client.get(where)
            assert (answer.status_code, name_of(answer)) == outcome
        assert (await client.post(path(waiting))).status_code == 405


@pytest.mark.rule("TIER-001")
async def test_damaged_bytes_are_never_sent(results: ResultNode, node: HttpNode, tmp_path: Path) -> None:
    task = await readable(results)
    async with node.client(await node.token()) as client:
        assert (await client.get(path(task))).status_code == 200  # and it is remembered as verified
        file = path_of(tmp_path / "warm", result_digest(OUTPUT))
        file.write_bytes(b"x" + OUTPUT[1:])
        for headers in ({}, {"range": "bytes=500-"}):
            answer = await client.get(path(task), headers=headers)
            assert (answer.status_code, name_of(answer)) == (500, "Corrupt")
        file.write_bytes(OUTPUT)
        assert (await client.get(path(task))).content == OUTPUT


async def test_hot_bytes_are_read_where_the_disk_has_none() -> None:
    async with result_node(msgspec.structs.replace(SERVING, result=ResultPolicy(max_inline_bytes=64))) as results:
        job, submission = await results.submission(b"hot")
        await results.do(submission)
        await results.verdict_with_output(submission, b"hot")
        await results.seal()
        async with http_server(results.access, results.world) as server:
            node = HttpNode(results.world, results.engine, results.access, server)
            async with node.client(await node.token()) as client:
                assert (await client.get(path(job))).content == b"hot"
