"""Streams of agents and senders: the challenge, the messages that follow, and writes that do not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from holdfast.api.evidence.buffer import EvidenceBuffer
from holdfast.api.grpc.call_wrapping import Context
from holdfast.api.grpc.services.agent_context import AgentContext
from holdfast.core.base.errors import Refused

NONCE_BYTES: Final = 32
"""Length of the nonce that a stream begins with."""
CHALLENGE_TIMEOUT_S: Final = 10.0
"""How long an agent may take to answer the challenge."""
WRITE_TIMEOUT_S: Final = 30.0
"""A sender that accepts no ack for this long is disconnected."""
_TOO_SLOW: Final = Refused("SEC-001", f"no ack was read for {WRITE_TIMEOUT_S:g} s", "read the acks", "BackPressure")


async def first_request(context: Context) -> Any:
    """The answer to the challenge; None where none came in time."""
    try:
        async with asyncio.timeout(CHALLENGE_TIMEOUT_S):
            request = await context.read()
    except TimeoutError:
        return None
    return None if request is grpc.aio.EOF else request  # type: ignore[attr-defined]


async def read_requests(context: Context) -> AsyncIterator[Any]:
    """All messages until the client closes its side of the stream."""
    while True:
        request = await context.read()
        if request is grpc.aio.EOF:  # type: ignore[attr-defined]
            return
        yield request


@asynccontextmanager
async def fill_in_background(agents: AgentContext, context: Context, buffer: EvidenceBuffer) -> AsyncIterator[None]:
    """Inside, a task reads the stream into the buffer; the buffer is closed when the server begins to close."""
    reader = asyncio.create_task(buffer.fill(read_requests(context)), name="evidence reader")
    try:
        with agents.until_closing(buffer.close):
            yield
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def write_within(context: Context, message: Any) -> Refused | None:
    """Write, or a refusal where the client does not read for too long."""
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await context.write(message)
    except TimeoutError:
        return _TOO_SLOW
    return None
