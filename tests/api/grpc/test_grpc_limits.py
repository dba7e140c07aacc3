"""Rate limits of the gRPC API (SEC-001)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from tests.api.grpc.agent_driver import AgentDriver, agent_node
from tests.api.grpc.grpc_server import Echo, call_failure, connected_channel, grpc_server, say
from tests.simulation.world import SimulatedClock

from holdfast.api.grpc.rate_interceptor import ActRateLimiter, peer_address
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.wire.signed_messages import AgentAct

pytestmark = pytest.mark.rule("SEC-001")


async def test_who_calls_too_often_gets_a_retry_time_and_no_service_sees_the_call() -> None:
    clock, echo = SimulatedClock(), Echo()
    async with (
        grpc_server(echo, clock=clock, address_per_s=10, address_burst=3) as server,
        connected_channel(server) as channel,
    ):
        for text in "abc":
            await say(channel, text)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(channel, "d")
        no = call_failure(caught.value)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (no.name, no.rule, no.hint) == ("RateLimited", "SEC-001", "try again in 100 ms")
        assert echo.heard == ["a", "b", "c"]
        clock.monotonic += 100
        await say(channel, "d")
    assert echo.heard == ["a", "b", "c", "d"]


async def test_another_connection_from_the_same_address_shares_its_limit() -> None:
    async with grpc_server(clock=SimulatedClock(), address_per_s=1, address_burst=1) as server:
        async with connected_channel(server) as first:
            await say(first, "a")
        async with connected_channel(server) as second:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await say(second, "b")
    assert call_failure(caught.value).name == "RateLimited"


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:[2001:db8::7]:4711", "2001:db8::7"),
        ("ipv6:%5B2001:db8::7%5D:4711", "2001:db8::7"),
        ("unix:/run/node.sock", "unix:/run/node.sock"),
        ("", ""),
    ],
)
def test_an_address_is_what_stands_before_the_port(peer: str, address: str) -> None:
    assert peer_address(peer) == address


class PassingClock(SimulatedClock):
    """Time passes for those who sleep, and only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_pass = asyncio.Event()

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)
        await self.may_pass.wait()
        self.monotonic += ms


async def test_an_agent_that_sends_too_much_is_delayed_and_delays_no_other() -> None:
    clock = PassingClock()
    clock.may_pass.set()
    pace = ActRateLimiter(clock, GrpcSettings(acts_per_s=10, acts_burst=1_024))
    await pace.wait_turn("oak", 1_024)
    assert clock.slept == []
    await pace.wait_turn("elm", 1_024)
    assert clock.slept == []
    await pace.wait_turn("oak", 2)
    assert clock.slept == [200]
    await pace.wait_turn("oak", 0)
    assert clock.slept == [200, 100], "a message without acts counts as well"


async def test_acts_beyond_the_limit_are_decided_when_their_time_has_come(tmp_path: Path) -> None:
    async with agent_node(tmp_path) as node:
        clock, oak = PassingClock(), AgentDriver(node)
        stream = await oak.start_work()
        node.agent_context.rate_limiter = ActRateLimiter(clock, GrpcSettings(acts_per_s=1, acts_burst=1))
        await stream.act(AgentAct("beat", slots=3))
        before = node.engine.undurable_state.last_event
        await stream.call.write(stream.signed(AgentAct("beat", slots=2)))
        async with asyncio.timeout(10):
            while not clock.slept:
                await asyncio.sleep(0)
        assert clock.slept == [1_000]
        assert node.engine.undurable_state.last_event == before, "it waits"
        clock.may_pass.set()
        assert (await stream.read("acts_done")).acts_done.outcomes[0].is_done
        assert node.engine.undurable_state.last_event > before
