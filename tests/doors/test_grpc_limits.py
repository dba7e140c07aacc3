"""How often is too often at the gRPC door (SEC-001)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from tests.doors.agents import Hand, housed
from tests.doors.grpc_house import Echo, dialled, no_of, opened, say
from tests.simulated.world import SimulatedClock

from holdfast.doors.grpc.limiting import Pace, address_in
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.wire.acts import Act

pytestmark = pytest.mark.rule("SEC-001")


async def test_who_calls_too_often_is_told_when_to_call_again_and_no_service_hears_of_it() -> None:
    clock, echo = SimulatedClock(), Echo()
    async with opened(echo, clock=clock, address_per_s=10, address_burst=3) as door, dialled(door) as channel:
        for text in "abc":
            await say(channel, text)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(channel, "d")
        no = no_of(caught.value)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (no.name, no.rule, no.hint) == ("RateLimited", "SEC-001", "ask again in 100 ms")
        assert echo.heard == ["a", "b", "c"]
        clock.monotonic += 100
        await say(channel, "d")
    assert echo.heard == ["a", "b", "c", "d"]


async def test_another_connection_from_the_same_address_has_the_same_measure() -> None:
    async with opened(clock=SimulatedClock(), address_per_s=1, address_burst=1) as door:
        async with dialled(door) as first:
            await say(first, "a")
        async with dialled(door) as second:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await say(second, "b")
    assert no_of(caught.value).name == "RateLimited"


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:[2001:db8::7]:4711", "[2001:db8::7]"),
        ("ipv6:%5B2001:db8::7%5D:4711", "%5B2001:db8::7%5D"),
        ("unix:/run/node.sock", "unix:/run/node.sock"),
        ("", ""),
    ],
)
def test_an_address_is_what_stands_before_the_port(peer: str, address: str) -> None:
    assert address_in(peer) == address


class PassingClock(SimulatedClock):
    """Time passes for those who sleep, and only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.may_pass = asyncio.Event()

    async def sleep(self, ms: int) -> None:
        self.slept.append(ms)
        await self.may_pass.wait()
        self.monotonic += ms


async def test_who_says_too_much_is_heard_later_and_nobody_waits_for_it() -> None:
    clock = PassingClock()
    clock.may_pass.set()
    pace = Pace(clock, GrpcSettings(acts_per_s=10, acts_burst=1_024))
    await pace.keep("oak", 1_024)
    assert clock.slept == []
    await pace.keep("elm", 1_024)
    assert clock.slept == []
    await pace.keep("oak", 2)
    assert clock.slept == [200]
    await pace.keep("oak", 0)
    assert clock.slept == [200, 100], "a message without acts counts as well"


async def test_acts_beyond_the_measure_are_decided_when_their_time_has_come(tmp_path: Path) -> None:
    async with housed(tmp_path) as house:
        clock, oak = PassingClock(), Hand(house)
        stream = await oak.at_work()
        house.at.pace = Pace(clock, GrpcSettings(acts_per_s=1, acts_burst=1))
        await stream.act(Act("beat", slots=3))
        before = house.engine.state.last_event
        await stream.call.write(stream.signed(Act("beat", slots=2)))
        async with asyncio.timeout(10):
            while not clock.slept:
                await asyncio.sleep(0)
        assert clock.slept == [1_000]
        assert house.engine.state.last_event == before, "it waits"
        clock.may_pass.set()
        assert (await stream.read("acts_done")).acts_done.outcomes[0].is_done
        assert house.engine.state.last_event > before
