"""Calls to the node: whoever waits for one can always be cancelled, and is told what to do about a connection."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from tests.loopback_ports import free_port

from holdfast.shipping.node_connection import NodeConnection, RpcFault, describe_fault, read_message, write_message

SLOW_S = 0.8
"""Longer than any pause between two attempts to connect."""
EMPTY_SETTINGS = bytes.fromhex("000000 04 00 00000000")
"""The first HTTP/2 frame of a server: from here on a connection counts as made."""


class FailingCall:
    """As a call of gRPC is that fails just now: a cancellation that meets it is gone."""

    async def read(self) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            nothing = grpc.aio.Metadata()
            raise RpcFault(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "down", "") from None
        return b""

    async def write(self, _: object) -> None:
        await self.read()


@pytest.mark.rule("EVD-004")
@pytest.mark.parametrize("use", [read_message, lambda call: write_message(call, b"")], ids=["read", "write"])
async def test_a_cancellation_during_a_failing_call_is_not_lost(use: object) -> None:
    """Whoever tries for ever would never end, and an agent that is told to stop would wait for it."""
    waiting = asyncio.create_task(use(FailingCall()))  # type: ignore[operator]
    await asyncio.sleep(0)  # it waits
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.rule("EVD-004")
async def test_a_timeout_while_a_call_fails_is_reported_as_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read_message(FailingCall())


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("details", "hint"),
    [
        ("ipv4:127.0.0.1:8452: Socket closed", "pass --ca"),
        ("Trying to connect an http1.x server (HTTP status 400)", "8452"),
        ("Cannot check peer: missing selected ALPN property.", "8452"),
        ("SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED", "--ca ca.pem"),
        ("connect: Connection refused (111)", "holdfast up"),
    ],
)
def test_a_connection_that_fails_says_what_to_do(details: str, hint: str) -> None:
    nothing = grpc.aio.Metadata()
    described = describe_fault(RpcFault(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details, ""))
    assert described.startswith(f"UNAVAILABLE: {details} (")
    assert hint in described


class SlowNode:
    """Says its first word late, as a busy node or one behind a slow link; it counts who came."""

    def __init__(self) -> None:
        self.port, self.connections = free_port(), 0
        self.is_called = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            async with asyncio.timeout(SLOW_S):
                while await reader.read(65_536):
                    pass  # the client's preface; an empty read: it gave up
        except TimeoutError:
            writer.write(EMPTY_SETTINGS)
            await reader.read(65_536)
            self.is_called.set()
        finally:
            writer.transport.abort()


@pytest.mark.rule("EVD-004")
async def test_a_node_that_answers_late_is_waited_for_by_the_first_connection() -> None:
    node = SlowNode()
    async with await asyncio.start_server(node.answer, "127.0.0.1", node.port):
        connection = NodeConnection(f"127.0.0.1:{node.port}", None)
        call = connection.open_retrovue_stream()
        async with asyncio.timeout(30):
            await node.is_called.wait()
        assert node.connections == 1
        call.cancel()
        await connection.close()
