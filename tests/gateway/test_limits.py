"""Abuse: too large, too slow, too many, too often. It is refused, bounded, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.running_gateway import BOUNDARY, Gateway, form, gateway

from holdfast.gateway.http.upload_endpoints import FORM_BYTES

LIMIT = 300_000


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path, object_bytes_max=LIMIT, memory_bytes=50_000, uploads_max=2, stall_ms=300) as opened:
        yield opened


def head(running: Gateway, more: str, path: str = "/upload") -> bytes:
    lines = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {running.token}\r\n"
        f"content-type: multipart/form-data; boundary={BOUNDARY}\r\n{more}\r\n\r\n"
    )
    return lines.encode()


async def raw_answer(running: Gateway, sent: bytes, *, is_closing: bool = False) -> bytes:
    """What the server answers to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    try:
        writer.write(sent)
        await writer.drain()
        if is_closing:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


async def assert_nothing_left(running: Gateway) -> None:
    for _ in range(500):
        if not running.server._routes.running:
            break
        await asyncio.sleep(0.01)
    assert (await running.stored(), running.spooled()) == ([], [])


@pytest.mark.rule("ARC-004", "SEC-001")
@pytest.mark.parametrize(("size", "status"), [(LIMIT, 200), (LIMIT + 1, 413)])
async def test_a_file_at_the_limit_is_stored_and_one_byte_more_is_not(small: Gateway, size: int, status: int) -> None:
    answer = await small.upload(b"x" * size)
    assert answer.status_code == status
    if status == 413:
        assert answer.json() == {"error": f"file size exceeds limit - {LIMIT} bytes"}
        await assert_nothing_left(small)


@pytest.mark.rule("ARC-004", "SEC-001")
async def test_a_body_that_announces_too_much_is_refused_before_it_is_read(small: Gateway) -> None:
    answer = await raw_answer(small, head(small, f"content-length: {LIMIT + FORM_BYTES + 1}"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert answer.endswith(b"length limit exceeded")
    await assert_nothing_left(small)


@pytest.mark.rule("SEC-001")
async def test_a_body_without_end_is_cut_off(small: Gateway) -> None:
    start = form([("x", b"", None)])[: -len(BOUNDARY) - 8]
    chunk = b"%x\r\n" % 100_000 + b"y" * 100_000 + b"\r\n"
    first = b"%x\r\n" % len(start) + start + b"\r\n"
    with suppress(ConnectionResetError):  # it may be closed while we are still sending
        answer = await raw_answer(small, head(small, "transfer-encoding: chunked") + first + chunk * 15)
        assert answer.startswith(b"HTTP/1.1 413 ")
    await assert_nothing_left(small)
    assert small.server.metrics.requests["/upload", "413"] == 1


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("size", [0, 100, 200_000])
async def test_an_upload_that_stalls_is_ended(small: Gateway, size: int) -> None:
    part = form([("file", b"x" * size, "a/b")])[:-40]
    answer = await raw_answer(small, head(small, "content-length: 250000") + part)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'{"error":"the upload has stalled"}' in answer
    await assert_nothing_left(small)


@pytest.mark.rule("SEC-001")
async def test_a_client_that_leaves_in_the_middle_leaves_nothing(small: Gateway) -> None:
    part = form([("file", b"x" * 200_000, "a/b")])[:-40]
    _, writer = await asyncio.open_connection("127.0.0.1", small.server.port)
    writer.write(head(small, "content-length: 250000") + part)
    await writer.drain()
    writer.transport.abort()
    await assert_nothing_left(small)


@pytest.mark.rule("SEC-001")
async def test_more_uploads_at_once_than_allowed_are_told_to_come_again(small: Gateway) -> None:
    part = form([("file", b"x", "a/b")])[:-40]
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", small.server.port)
        writer.write(head(small, "content-length: 1000") + part)
        writers.append(writer)
    for _ in range(500):
        if small.server.metrics.gauges["uploads_running"]() == 2:
            break
        await asyncio.sleep(0.01)
    answer = await small.upload(b"x")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    for writer in writers:
        writer.transport.abort()
    await assert_nothing_left(small)
    assert (await small.upload(b"x")).status_code == 200


@pytest.mark.rule("SEC-001")
async def test_a_key_has_a_quota_of_bytes_and_of_items(running: Gateway) -> None:
    few = running.new_token(quota_items=2)
    assert [(await running.upload(b"%d" % n, token=few)).status_code for n in range(3)] == [200, 200, 507]
    assert (await running.upload(b"2", token=few)).json() == {"error": "quota exceeded - 2 dataitems"}
    little = running.new_token(quota_bytes=10_000)
    assert (await running.upload(b"x" * 9_000, token=little)).status_code == 200
    before = await running.stored()
    answer = await running.upload(b"y" * 2_000, token=little)
    assert (answer.status_code, answer.json()) == (507, {"error": "quota exceeded - 10000 bytes"})
    at_once = await asyncio.gather(*(running.upload(b"%d" % n * 500, token=little) for n in range(4)))
    assert {answer.status_code for answer in at_once} <= {200, 507}
    assert (await running.store.index.usage(little.split("_")[2]))[1] <= 10_000
    assert len(await running.stored()) >= len(before)


@pytest.mark.rule("SEC-001")
async def test_rates_are_limited_by_key_and_by_address(tmp_path: Path) -> None:
    async with gateway(tmp_path, key_per_s=1, key_burst=3, address_per_s=1, address_burst=2) as running:
        assert [(await running.upload(b"x")).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert [(await running.http.get("/stats")).status_code for _ in range(3)] == [200, 200, 429]
        limited = await running.http.get("/stats")
        assert (limited.json(), "retry-after" in limited.headers) == ({"error": "too many requests"}, True)
        assert running.server.metrics.refusals["rate"] == 3


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000,
        b"POST /upload HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /upload HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(small: Gateway, sent: bytes) -> None:
    assert (await raw_answer(small, sent, is_closing=True)).startswith((b"HTTP/1.1 4", b""))
    assert (await small.upload(b"x")).status_code == 200


@pytest.mark.rule("SEC-001")
async def test_memory_does_not_grow_with_the_size_of_uploads(tmp_path: Path) -> None:
    async with gateway(tmp_path, memory_bytes=64 << 10) as running:
        await running.upload(b"x")

        async def body() -> AsyncIterator[bytes]:
            yield form([("file", b"", "a/b")])[: -len(BOUNDARY) - 8]
            for _ in range(300):
                yield bytes(100_000)
            yield f"\r\n--{BOUNDARY}--\r\n".encode()

        headers = {
            "authorization": f"Bearer {running.token}",
            "content-type": f"multipart/form-data; boundary={BOUNDARY}",
        }
        tracemalloc.start()
        try:
            answer = await running.http.post("/upload", content=body(), headers=headers)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.status_code == 200
        assert (await running.http.head(f"/resolve/{answer.json()['dataitem_id']}")).headers[
            "content-length"
        ] == "30000000"
        assert most < 8_000_000


@pytest.mark.rule("SEC-001")
async def test_requests_that_run_are_finished_before_the_gateway_stops(tmp_path: Path) -> None:
    body = form([("file", b"x" * 1_000, "a/b")])
    async with gateway(tmp_path) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        writer.write(head(running, f"content-length: {len(body)}") + body[:500])
        for _ in range(500):
            if running.server._routes.running:
                break
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(running.server.close())
        for _ in range(500):
            if running.server._routes.is_closing:
                break
            await asyncio.sleep(0.01)
        with pytest.raises(OSError, match="Connect call failed"):
            await asyncio.open_connection("127.0.0.1", running.server.port)
        writer.write(body[500:])
        answer: Any = await asyncio.wait_for(reader.read(), 30)
        assert b"file uploaded successfully" in answer
        writer.close()
        await closing


@pytest.mark.rule("SEC-001")
async def test_a_client_that_reads_nothing_is_disconnected(tmp_path: Path) -> None:
    async with gateway(tmp_path, stall_ms=300) as running:
        id_ = (await running.upload(bytes(30_000_000))).json()["dataitem_id"]
        with socket.create_connection(("127.0.0.1", running.server.port)) as client:
            client.sendall(f"GET /resolve/{id_} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            for _ in range(1_000):
                if (
                    running.server.metrics.requests["/resolve/*", "200"]
                    and running.server.metrics.gauges["connections"]() <= 1
                ):
                    break
                await asyncio.sleep(0.01)
            # The client's socket is still open: it is the server that has disconnected.
            assert running.server.metrics.gauges["connections"]() <= 1
            assert running.server.metrics.requests["/resolve/*", "200"] == 1
            assert running.server._routes.running == 0
