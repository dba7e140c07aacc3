"""Outputs that only the archive holds: fetched for keys, decrypted, hash-checked, within a budget (RES-009, DA-001)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.api.http.http_node import HttpNode, http_server, name_of
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.adapters.keys.archive_key import ResultDecryptor
from holdfast.core.base.values import AccountId, TaskId
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("RES-009", "BLB-003", "JOB-010")
LARGE = bytes(range(256)) * 1_500


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = ArchiveNode(archive_policy(), tmp_path)
    node.fetch_bytes_per_hour = 2 * len(LARGE)
    await node.open_with_provider()
    yield node
    await node.kill()


@pytest.fixture
async def http(node: ArchiveNode) -> AsyncIterator[HttpNode]:
    access = node.access()
    async with http_server(access, node.world) as server:
        yield HttpNode(node.world, node.engine, access, server)


async def cold(node: ArchiveNode, output: bytes = LARGE, *, is_public: bool = False) -> TaskId:
    """A result whose bytes only the archive holds."""
    task = await (node.resolve_public if is_public else node.resolve)(output, seals=1)
    await node.pack_final()
    await node.let_go()
    assert await node.bytes_of(task) is None
    return task


async def get(http: HttpNode, task: TaskId, token: str | None, **headers: str) -> Any:
    async with http.client(token) as client:
        return await client.get(f"/v1/outputs/{task.hex()}", headers=headers)


@pytest.mark.parametrize("size", [1, 65_536, 65_537, len(LARGE)])
async def test_archived_bytes_are_served_whole_and_in_ranges(node: ArchiveNode, http: HttpNode, size: int) -> None:
    task = await cold(node, LARGE[:size])
    token = await http.token(Role.REQUESTER)
    node.provider.fetches.clear()
    answer = await get(http, task, token)
    assert (answer.status_code, answer.content) == (200, LARGE[:size])
    part = await get(http, task, token, range="bytes=0-0")
    assert (part.status_code, part.content) == (206, LARGE[:1])
    assert len(set(node.provider.fetches)) == len(node.provider.fetches)  # the second came from the file


async def test_many_readers_share_one_fetch(node: ArchiveNode, http: HttpNode) -> None:
    task, token = await cold(node), await http.token(Role.REQUESTER)
    before = len(node.provider.fetches)
    answers = await asyncio.gather(*(get(http, task, token) for _ in range(5)))
    assert {answer.content for answer in answers} == {LARGE}
    assert len(node.provider.fetches) - before == 4  # blobs


async def test_without_a_key_the_locators_must_do(node: ArchiveNode, http: HttpNode) -> None:
    task = await cold(node, is_public=True)
    fetches = len(node.provider.fetches)
    answer = await get(http, task, None)
    assert (answer.status_code, name_of(answer)) == (410, "ResultPruned")
    locators = answer.json()["error"]["data"]["about"]["locators"].split(" ")
    assert [locator.startswith("file:test/items/") for locator in locators] == [True] * 4
    assert len(node.provider.fetches) == fetches
    stranger = await http.token(Role.REQUESTER, account=AccountId("bob"))
    assert (await get(http, task, stranger)).content == LARGE  # it is public


async def test_another_account_gets_neither_bytes_nor_key(node: ArchiveNode, http: HttpNode) -> None:
    task = await cold(node)
    stranger = await http.token(Role.REQUESTER, account=AccountId("bob"))
    assert (await get(http, task, stranger)).status_code == 403
    answer = await http.call("blob.getKey", stranger, task_id=task.hex())
    assert name_of(answer) == "Forbidden"
    assert name_of(await http.call("blob.getKey", None, task_id=task.hex())) == "Unauthorized"


async def test_the_key_of_a_result_opens_it_and_nothing_else(node: ArchiveNode, http: HttpNode) -> None:
    task, other = await cold(node), await cold(node, LARGE[1:])
    token = await http.token(Role.REQUESTER)
    key = (await http.call("blob.getKey", token, task_id=task.hex())).json()["result"]
    assert (key["is_encrypted"], len(key["key"])) == (True, 64)
    assert key["key"] != (await http.call("blob.getKey", token, task_id=other.hex())).json()["result"]["key"]
    secret = node.cipher.encrypt(task, (await node.record(task)).result_digest, LARGE)
    decryptor = ResultDecryptor(bytes.fromhex(key["key"]))
    assert decryptor.feed(secret) + decryptor.finish() == LARGE
    public = await cold(node, b"for all", is_public=True)
    shown = (await http.call("blob.getKey", token, task_id=public.hex())).json()["result"]
    assert (shown["is_encrypted"], shown["key"]) == (False, "")


async def test_an_archive_that_lies_or_forgets_gives_no_byte(node: ArchiveNode, http: HttpNode) -> None:
    task, token = await cold(node), await http.token(Role.REQUESTER)
    for lie, status in ((lambda raw: raw[:-1] + b"\1", 500), (lambda _: b"short", 500), (lambda _: None, 503)):
        node.provider.lie = lie
        node.clock.monotonic += 3_600_000  # a fetch that failed has cost as much
        answer = await get(http, task, token)
        assert (answer.status_code, LARGE[:32] in answer.content) == (status, False)
    node.provider.lie = lambda raw: raw
    assert list((node.folder / "fetched").iterdir()) == []  # nothing is left of what failed


async def test_a_budget_bounds_what_readers_make_the_node_fetch(node: ArchiveNode, http: HttpNode) -> None:
    token = await http.token(Role.REQUESTER)
    tasks = [await cold(node, bytes([number]) + LARGE) for number in range(3)]
    for task in tasks[:2]:
        assert (await get(http, task, token)).status_code == 200
    refused = await get(http, tasks[2], token)
    assert (refused.status_code, name_of(refused)) == (429, "RateLimited")
    assert (await get(http, tasks[0], token)).status_code == 200  # fetched already
    node.clock.monotonic += 3_600_000
    assert (await get(http, tasks[2], token)).status_code == 200


@pytest.mark.rule("DA-001", "RES-008")
async def test_shares_of_archived_bytes_are_proven_again_for_keys(node: ArchiveNode, http: HttpNode) -> None:
    task = await cold(node, is_public=True)
    token = await http.token(Role.REQUESTER)
    proof = (await http.call("da.proveShares", token, task_id=task.hex(), start=3, count=2)).json()["result"]
    assert bytes.fromhex(proof["da"]["shares"][0])[-64:] in LARGE
    assert len(proof["locators"]) == 4
    access = node.access()
    async with http_server(access, node.world) as server:  # another process: nothing is cached
        second = HttpNode(node.world, node.engine, access, server)
        assert name_of(await second.call("da.proveShares", None, task_id=task.hex(), start=3)) == "ResultPruned"
    plain = (await http.call("cap.proveResult", None, task_id=task.hex())).json()["result"]
    assert plain["locators"] == proof["locators"]
