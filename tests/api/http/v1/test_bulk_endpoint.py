"""`POST /v1/jobs:bulk`: an outcome for every line, in order, and a line that is wrong harms no other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.api.http.http_node import HttpNode, http_node, name_of
from tests.core.commands import some_id

from holdfast.api.http.v1 import bulk_endpoint
from holdfast.core.base.values import AccountId, Amount
from holdfast.core.escrow.messages import Mint
from holdfast.core.key.model import Role

pytestmark = pytest.mark.rule("JOB-002", "SEC-001")
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
async def node() -> AsyncIterator[HttpNode]:
    async with http_node(key_per_s=1_000_000, key_burst=1_000_000) as made:
        await made.engine.submit(Mint(some_id(1), AccountId("alice"), Amount(1_000_000)))
        yield made


def job(number: int, **told: object) -> dict[str, object]:
    payload = {"kind": "AI", "spec": {"model": "m", "prompt": f"job {number}"}}
    return {"payload": payload, "max_fee": 10, "idempotency_key": f"key {number}"} | told


async def bulk(node: HttpNode, raw: bytes, token: str | None, headers: dict[str, str] = NDJSON) -> httpx.Response:
    async with node.client(token) as client:
        return await client.post("/v1/jobs:bulk", content=raw, headers=headers)


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def answers(response: httpx.Response) -> list[Any]:
    assert (response.status_code, response.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in response.content.splitlines()]


async def test_every_line_has_its_receipt_in_order_and_the_same_body_again_the_same(node: HttpNode) -> None:
    token = await node.token(Role.REQUESTER)
    body = lines(*(job(number) for number in range(250)))
    first = answers(await bulk(node, body, token))
    assert [answer["line"] for answer in first] == list(range(1, 251))
    tasks = [answer["result"]["task_id"] for answer in first]
    assert len(set(tasks)) == 250
    assert [job_.id.hex() for job_ in node.engine.undurable_state.queue.jobs.values()] == tasks
    again = answers(await bulk(node, body, token))
    assert [answer["result"] for answer in again] == [answer["result"] | {"is_repeat": True} for answer in first]


async def test_a_line_that_is_refused_has_its_error_and_the_others_are_admitted(node: HttpNode) -> None:
    wrong = [
        (b"{", "ParseError"),
        (b"", "ParseError"),
        (b"[" * 100 + b"]" * 100, "InvalidRequest"),
        (b"[1]", "InvalidParams"),
        (b"[%s1]" % (b"1," * 200_000), "TooLarge"),
        (b'"%s"' % (b"x" * (4 << 20)), "TooLarge"),
        (b'{"max_fee": 1}', "InvalidParams"),
        (json.dumps(job(1, max_fee=10_000_000, idempotency_key="dear")).encode(), "InsufficientFunds"),
        (json.dumps(job(1, caller="bob", idempotency_key="bob")).encode(), "Forbidden"),
    ]
    body = b"".join(lines(job(number)) + raw + b"\n" for number, (raw, _) in enumerate(wrong))
    found = answers(await bulk(node, body, await node.token(Role.REQUESTER)))
    assert [answer["line"] for answer in found] == list(range(1, 2 * len(wrong) + 1))
    assert all("result" in answer for answer in found[::2])
    assert [answer["error"]["data"]["name"] for answer in found[1::2]] == [name for _, name in wrong]
    assert len(node.engine.undurable_state.queue.jobs) == len(wrong)


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_the_last_line_needs_no_end_and_no_line_is_no_job(node: HttpNode, end: bytes) -> None:
    token = await node.token(Role.REQUESTER)
    assert len(answers(await bulk(node, lines(job(1)).rstrip() + end, token))) == 1
    assert answers(await bulk(node, b"", token)) == []


async def test_what_is_too_much_is_refused_before_any_line_is_admitted(
    node: HttpNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await node.token(Role.REQUESTER)
    monkeypatch.setattr(bulk_endpoint, "LINES_MAX", 3)
    assert len(answers(await bulk(node, lines(*(job(number) for number in range(3))), token))) == 3
    many = await bulk(node, lines(*(job(number) for number in range(10, 14))), token)
    assert (many.status_code, name_of(many)) == (413, "TooLarge")
    empty = await bulk(node, b"\n" * 5, token)
    assert (empty.status_code, name_of(empty)) == (413, "TooLarge")
    monkeypatch.setattr(bulk_endpoint, "BODY_BYTES_MAX", 100)
    large = await bulk(node, lines(job(20)), token)
    assert (large.status_code, name_of(large)) == (413, "TooLarge")
    monkeypatch.setattr(bulk_endpoint, "RUNNING_MAX", 0)
    busy = await bulk(node, lines(job(30)), token)
    assert (busy.status_code, name_of(busy)) == (429, "RateLimited")
    assert len(node.engine.undurable_state.queue.jobs) == 3


async def test_who_may_not_enqueue_may_not_do_so_in_bulk_and_the_body_is_ndjson(node: HttpNode) -> None:
    for token, status in ((None, 401), (await node.token(Role.AUDITOR), 403)):
        assert (await bulk(node, lines(job(1)), token)).status_code == status
    token = await node.token(Role.REQUESTER)
    for headers in ({"content-type": "application/json"}, {}, NDJSON | {"content-encoding": "gzip"}):
        assert (await bulk(node, lines(job(1)), token, headers)).status_code == 415
    async with node.client(token) as client:
        assert (await client.get("/v1/jobs:bulk")).status_code == 405
    assert len(node.engine.undurable_state.queue.jobs) == 0


async def test_lines_beyond_the_rate_of_the_key_wait_and_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_node(key_per_s=1_000, key_burst=100) as node:

        async def sleep(ms: int) -> None:
            node.world.clock.monotonic += ms

        monkeypatch.setattr(node.world.clock, "sleep", sleep)
        await node.engine.submit(Mint(some_id(1), AccountId("alice"), Amount(1_000_000)))
        token = await node.token(Role.REQUESTER)
        before_ms = node.world.clock.monotonic_ms()
        found = answers(await bulk(node, lines(*(job(number) for number in range(350))), token))
        assert sum("result" in answer for answer in found) == 350
        assert node.world.clock.monotonic_ms() - before_ms >= 250


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [([], []), ([1], [1]), ([1] * 101, [100, 1]), ([200_000] * 3, [1, 1, 1]), ([1_000_000, 1], [1, 1]), ([0] * 3, [3])],
)
def test_a_group_is_bounded_in_lines_and_bytes(sizes: list[int], groups: list[int]) -> None:
    found = list(bulk_endpoint._groups([b"x" * size for size in sizes]))
    assert [len(group) for _, group in found] == groups
    assert [first for first, _ in found] == [1 + sum(groups[:n]) for n in range(len(groups))]


async def test_a_line_or_a_message_that_names_a_key_twice_is_refused(node: HttpNode) -> None:
    token = await node.token(Role.REQUESTER)
    twice = json.dumps(job(1)).encode()[:-1] + b', "max_fee": 11}\n'
    first, second = answers(await bulk(node, twice + lines(job(2)), token))
    assert (first["error"]["data"]["name"], first["error"]["message"]) == (
        "InvalidRequest",
        "a duplicate key: 'max_fee'",
    )
    assert second["result"]["task_id"]
    message = b'{"jsonrpc":"2.0","id":1,"method":"cap.enqueue","params":%s}' % twice.strip()
    refused = await node.post(message, token)
    assert (refused.status_code, name_of(refused)) == (400, "InvalidRequest")
    assert len(node.engine.undurable_state.queue.jobs) == 1
