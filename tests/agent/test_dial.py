"""Calls to the node: who waits for one can always be told to stop."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from holdfast.agent.dial import Fault, read_from, write_to


class Failing:
    """As a call of gRPC is that fails just now: a cancellation that meets it is gone."""

    async def read(self) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            nothing = grpc.aio.Metadata()
            raise Fault(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "down", "") from None
        return b""

    async def write(self, _: object) -> None:
        await self.read()


@pytest.mark.rule("EVD-004")
@pytest.mark.parametrize("use", [read_from, lambda call: write_to(call, b"")], ids=["read", "write"])
async def test_a_cancellation_that_meets_a_failing_call_is_not_lost(use: object) -> None:
    """Whoever tries for ever would never end, and an agent that is told to stop would wait for it."""
    waiting = asyncio.create_task(use(Failing()))  # type: ignore[operator]
    await asyncio.sleep(0)  # it waits
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.rule("EVD-004")
async def test_a_time_that_is_up_while_a_call_fails_is_told_as_such() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await read_from(Failing())
