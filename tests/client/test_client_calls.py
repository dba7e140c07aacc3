"""Calls are repeated safely, refusals have their classes, and a node is told from something else."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest
from tests.client.scripted_node import Asked, refusal, response, result, scripted_node

from holdfast import AsyncClient, Client
from holdfast.api.error_codes import ERROR_CODES
from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.input_source import PART_BYTES
from holdfast.client.job_lines import JobRequest, JobsRefused
from holdfast.client.refusals import REFUSALS, ForbiddenError, UnavailableError
from holdfast.core.base.errors import Unavailable
from holdfast.core.job.input_ref import input_digest

pytestmark = pytest.mark.rule("RPC-001")
PAYLOAD = {"kind": "AI", "spec": {"model": "echo", "prompt": "hi"}}
NUMBERS = ("height", "nonce", "earliest_read_height", "reserved", "enqueue_ms", "expires_ms", "expires_height")
RECEIPT = {
    **dict.fromkeys(("task_id", "kind", "caller", "tx_hash", "request_hash"), "x"),
    **dict.fromkeys(NUMBERS, 1),
    "event": 7,
    "is_repeat": False,
}


def test_every_refusal_of_the_node_has_a_class_of_its_own() -> None:
    assert REFUSALS.keys() == ERROR_CODES.keys()
    assert len({*REFUSALS.values()}) == len(ERROR_CODES)


@pytest.mark.rule("JOB-002")
async def test_a_job_whose_answer_was_lost_is_sent_again_with_the_same_key_and_nonce(tmp_path: Path) -> None:
    def lost(_: Asked) -> bytes:
        return b""

    def broken(_: Asked) -> bytes:
        return response(b'{"jsonrpc"', whole=False)

    answers = (lost, broken, lambda _: refusal("Unavailable", 503), lambda _: refusal("RateLimited", 429))
    node = scripted_node(tmp_path, *answers, lambda _: result(RECEIPT))
    async with node as asked, AsyncClient(tmp_path) as client:
        receipt = await client.enqueue(PAYLOAD, 100, caller="alice")
        other = await client.enqueue(PAYLOAD, 100, caller="alice")
    assert (receipt.event, other.is_repeat) == (7, False)
    *first, second = [each.json["params"] for each in asked]
    assert len(first) == 5
    assert all(each == first[0] for each in first)
    assert first[0]["idempotency_key"] != second["idempotency_key"]
    assert first[0]["nonce"] != second["nonce"]
    assert 0 <= first[0]["nonce"] < 2**53, "a number that JavaScript holds"


async def test_a_refusal_is_raised_at_once_as_its_class_with_everything_it_says(tmp_path: Path) -> None:
    async with scripted_node(tmp_path, lambda _: refusal("Forbidden", 403)) as asked, AsyncClient(tmp_path) as client:
        with pytest.raises(ForbiddenError) as caught:
            await client.cancel("00" * 32)
    assert len(asked) == 1
    assert (caught.value.name, caught.value.rule, caught.value.hint) == ("Forbidden", "X-001", "do this")


async def test_a_refusal_that_is_not_known_yet_is_a_refusal(tmp_path: Path) -> None:
    async with scripted_node(tmp_path, lambda _: refusal("FromTheFuture")), AsyncClient(tmp_path) as client:
        with pytest.raises(NodeRefused) as caught:
            await client.status()
    assert type(caught.value) is NodeRefused


async def test_what_stays_unavailable_is_named_when_the_time_is_over(tmp_path: Path) -> None:
    answers = (lambda _: refusal("Unavailable", 503),)
    async with scripted_node(tmp_path, *answers) as asked, AsyncClient(tmp_path, timeout_s=0.1) as client:
        with pytest.raises(UnavailableError):
            await client.status()
    assert len(asked) > 1


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b"1"])
async def test_another_server_is_not_a_node(tmp_path: Path, raw: bytes) -> None:
    async with scripted_node(tmp_path, lambda _: response(raw)), AsyncClient(tmp_path) as client:
        with pytest.raises(NodeUnreachable, match="not a node"):
            await client.status()


async def test_a_proxy_that_has_no_node_behind_it_is_asked_again(tmp_path: Path) -> None:
    node = scripted_node(tmp_path, lambda _: response(b"<html>", 502), lambda _: result(RECEIPT))
    async with node, AsyncClient(tmp_path) as client:
        assert (await client.enqueue(PAYLOAD, 100)).event == 7


async def test_without_a_node_the_client_says_where_it_looked(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, timeout_s=0.0) as client:
        with pytest.raises(NodeUnreachable, match=r"http\.sock"):
            await client.status()


async def test_the_blocking_client_is_the_same(tmp_path: Path) -> None:
    def ask() -> None:
        with Client(tmp_path) as client:
            assert client.enqueue(PAYLOAD, 100).event == 7
            with pytest.raises(ForbiddenError):
                client.status()

    async with scripted_node(tmp_path, lambda _: b"", lambda _: result(RECEIPT), lambda _: refusal("Forbidden")):
        await asyncio.to_thread(ask)


@pytest.mark.parametrize("url", ["", "node:8451", "http://", "http://x:99999", "ftp://x", "http://[", "unix:x"])
def test_what_is_not_a_url_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(Unavailable, match="is not a URL"):
        Client(url)


def test_a_token_is_one_word_and_a_wrong_one_is_not_repeated() -> None:
    with pytest.raises(Unavailable) as caught:
        Client("http://x", token="hf_one two")
    assert "two" not in str(caught.value)
    assert "`token` does not contain a token" in str(caught.value), "it was not the environment's"


def test_url_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "http://127.0.0.1:1/node/")
    monkeypatch.setenv("HOLDFAST_TOKEN", "hf_x")
    node = Client()._transport.node
    assert (node.base, node.headers) == ("http://127.0.0.1:1/node", {"Authorization": "Bearer hf_x"})
    assert Client(Path("here"))._transport.node.headers == {}, "a folder needs no token"


# ------------------------------------------------------------------------------------------------ many


def bulk_answer(asked: Asked, *, until: int | None = None, wrong: tuple[int, ...] = (), full: int = 10**9) -> bytes:
    """Receipts for the lines that were sent; refusals for some, no room after `full`, nothing after `until`."""
    lines = [json.loads(line) for line in asked.body.split(b"\n")]
    answers = []
    for number, line in enumerate(lines[:until], start=1):
        name = "QueueFull" if number > full else "InsufficientFunds" if line["max_fee"] in wrong else None
        error = {"code": 1, "message": "no", "data": {"name": name, "rule": "R"}}
        found = {"result": RECEIPT | {"task_id": line["idempotency_key"]}} if name is None else {"error": error}
        answers.append(json.dumps({"line": number, **found}))
    return response(("\n".join(answers) + "\n").encode(), whole=until is None)


@pytest.mark.rule("JOB-002", "JOB-006")
async def test_many_jobs_have_their_receipts_in_order_though_answers_are_lost_and_the_queue_is_full(
    tmp_path: Path,
) -> None:
    answers = (
        lambda asked: bulk_answer(asked, until=3),
        lambda _: b"",
        lambda asked: bulk_answer(asked, full=2),
        bulk_answer,
    )
    seen: list[int] = []
    async with scripted_node(tmp_path, *answers) as asked, AsyncClient(tmp_path) as client:
        receipts = await client.enqueue_many((PAYLOAD for _ in range(10)), 100, caller="alice", progress=seen.append)
    sent = [[json.loads(line)["idempotency_key"] for line in each.body.split(b"\n")] for each in asked]
    assert [each.task_id for each in receipts] == sent[0]
    assert [len(each) for each in sent] == [10, 7, 7, 5]
    assert all(set(each) <= set(sent[0]) for each in sent)
    assert seen[-1] == 10
    assert seen == sorted(seen)


async def test_jobs_that_are_refused_are_named_and_the_receipts_of_the_others_are_not_lost(tmp_path: Path) -> None:
    jobs = [JobRequest(PAYLOAD, fee) for fee in (1, 2, 3, 4)]
    async with scripted_node(tmp_path, lambda asked: bulk_answer(asked, wrong=(2, 4))), AsyncClient(tmp_path) as client:
        with pytest.raises(JobsRefused) as caught:
            await client.enqueue_many(jobs)
    assert caught.value.receipts.keys() == {0, 2}
    assert {at: no.name for at, no in caught.value.refused.items()} == dict.fromkeys((1, 3), "InsufficientFunds")


# ------------------------------------------------------------------------------------------------ inputs


@pytest.mark.rule("JOB-003")
async def test_a_small_input_goes_with_its_job_and_a_large_one_is_uploaded_and_resumed(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"x" * (PART_BYTES + 10))
    received = 0

    def upload(asked: Asked) -> bytes:
        nonlocal received
        if asked.line.startswith("HEAD"):
            return response(b"", headers=f"upload-offset: {received}\r\n")
        if asked.line.startswith("PUT"):
            first = int(asked.headers["content-range"].split()[1].split("-")[0])
            assert first == received
            received += len(asked.body)
            if first:
                return response(b"", 201)
            return b""  # it has the part, and its answer is lost
        return result(RECEIPT)

    async with scripted_node(tmp_path, upload) as asked, AsyncClient(tmp_path) as client:
        await client.enqueue(PAYLOAD, 100, caller="alice", input=b"few", media_type="text/plain")
        await client.enqueue(PAYLOAD, 100, caller="alice", input=large)
    small, whole = (each.json["params"] for each in asked if each.line.startswith("POST"))
    assert (base64.b64decode(small["input"]), small["payload"]["input"]) == (b"few", {"media_type": "text/plain"})
    named = {"digest": input_digest(large.read_bytes()).hex(), "size": PART_BYTES + 10}
    assert whole["payload"]["input"] == named | {"media_type": "application/octet-stream"}
    assert "input" not in whole
    uploads = [each for each in asked if "/v1/inputs/" in each.line]
    assert [each.line.split()[0] for each in uploads] == ["HEAD", "PUT", "HEAD", "PUT"]
    assert all(f"{named['digest']}?caller=alice" in each.line for each in uploads)
