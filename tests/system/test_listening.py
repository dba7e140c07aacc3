"""A server that a crowd connects to serves others in between (SEC-002)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from holdfast.system.listening import ACCEPTS_PER_TURN, listen_on, serve_on

CROWD = 20
TURNS = 10 * CROWD


@pytest.mark.rule("SEC-002")
async def test_a_crowd_is_accepted_a_few_at_a_time_and_nobody_is_turned_away() -> None:
    accepted = 0

    class Counting(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            nonlocal accepted
            accepted += 1

    listener = listen_on("127.0.0.1", 0)
    crowd = [socket.create_connection(listener.getsockname()) for _ in range(CROWD)]
    server = await serve_on(listener, Counting)
    try:
        steps = list[int]()
        for _ in range(TURNS):
            before = accepted
            await asyncio.sleep(0)
            steps.append(accepted - before)
        assert accepted == CROWD
        assert max(steps) <= ACCEPTS_PER_TURN + 1  # newer versions of Python accept one more
    finally:
        server.close()
        for each in crowd:
            each.close()
