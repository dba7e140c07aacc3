"""Calls to the node: whoever waits for one can always be cancelled, and is told what to do about a connection."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from holdfast.shipping.node_connection import RpcFault, describe_fault, read_message, write_message


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
