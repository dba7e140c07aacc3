"""Connections at the gRPC door: health, reflection, thousands of idle streams, limits, silence and the way out."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs
from tests.doors.grpc_house import ECHO, Channel, Echo, dialled, no_of, opened, say, say_many, talking

from holdfast.adapters.clock import MachineClock
from holdfast.core.refusal import Unavailable
from holdfast.doors.grpc.door import GrpcDoor
from holdfast.doors.grpc.node import node_service
from holdfast.doors.grpc.settings import LEAVES, GrpcSettings

pytestmark = pytest.mark.rule("RPC-001")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How an HTTP/2 client begins, with empty settings."""
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"holdfast"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
WITHIN_S = 20.0
"""How long a test waits for what must come."""


def health(channel: Channel) -> Any:
    return health_pb2_grpc.HealthStub(channel)


async def until(is_so: Any) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------------------------ health, reflection


@pytest.mark.parametrize("service", ["", ECHO])
async def test_health_is_what_the_node_is_at_that_moment(service: str) -> None:
    phase = {"is_running": False}
    async with opened(is_serving=lambda: phase["is_running"]) as door, dialled(door) as channel:
        seen = []
        for phase["is_running"] in (False, True, False):
            answer = await health(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            seen.append(answer.status)
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_who_watches_health_is_told_of_each_change_and_of_the_end() -> None:
    phase = {"is_running": True}
    async with opened(is_serving=lambda: phase["is_running"]) as door, dialled(door) as channel:
        watch = health(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
        seen = [(await watch.read()).status]
        for phase["is_running"] in (False, True):
            seen.append((await watch.read()).status)
        closing = asyncio.create_task(door.close(30))
        seen.append((await watch.read()).status)
        watch.cancel()
        await closing
    assert seen == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]


async def test_health_of_an_unknown_service_is_not_found() -> None:
    with capture_logs() as logs:
        async with opened() as door, dialled(door) as channel:
            asked = health(channel).Check(health_pb2.HealthCheckRequest(service="no.Such"), timeout=30)
            assert await _code_of(asked) == "NOT_FOUND"
    assert logs == []


async def ask_reflection(channel: Channel, **asked: Any) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**asked)]), timeout=30)
    return await call.read()


@pytest.mark.rule("SEC-001")
async def test_health_and_reflection_need_no_key() -> None:
    async def nobody(*_: object) -> object:
        raise AssertionError("nobody is asked for")

    async with opened(identify=nobody) as door, dialled(door) as channel:
        assert (await health(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)).status == SERVING
        assert await ask_reflection(channel, list_services="")


async def test_reflection_lists_the_services_and_describes_them() -> None:
    async def never(*_: object) -> Any:
        raise AssertionError

    async with opened(services=[node_service(never, never)]) as door, dialled(door) as channel:
        listed = await ask_reflection(channel, list_services="")
        described = await ask_reflection(channel, file_containing_symbol="holdfast.node.v1.NodeService")
    assert {service.name for service in listed.list_services_response.service} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "holdfast.node.v1.NodeService",
    }
    assert b"GetStatus" in described.file_descriptor_response.file_descriptor_proto[0]


# ------------------------------------------------------------------------------------------------ many, and too many


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


async def test_hundreds_of_idle_streams_cost_little_memory_and_no_threads() -> None:
    """Both ends are in this process, so what is measured is twice what the node pays."""
    connections, streams = 50, 20
    async with opened() as door, AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(dialled(door)) for _ in range(connections)]
        await asyncio.gather(*(say(channel, "warm") for channel in channels))
        threads, kib = threading.active_count(), resident_kib()
        calls = [talking(channel) for channel in channels for _ in range(streams)]
        said = await asyncio.gather(*(_say_on(call, str(number)) for number, call in enumerate(calls)))
        assert said == [f"(None, None): {number}" for number in range(connections * streams)]
        assert (resident_kib() - kib) / len(calls) < 100
        assert threading.active_count() <= threads + 4
        assert await say(channels[0], "still here") == "(None, None): still here"
        await asyncio.gather(*(_end(call) for call in calls))


async def _end(call: Any) -> None:
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF  # type: ignore[attr-defined]


async def _say_on(call: Any, text: str) -> str:
    await call.write(StringValue(value=text))
    return str((await call.read()).value)


@pytest.mark.rule("SEC-001")
async def test_a_connection_has_only_so_many_calls_open_and_the_next_one_waits() -> None:
    async with opened(streams_max=2) as door, dialled(door) as channel, dialled(door) as other:
        open_ = [talking(channel), talking(channel)]
        for call in open_:
            await _say_on(call, "x")
        third = talking(channel)
        waiting = asyncio.create_task(_say_on(third, "x"))
        assert await say(other, "x") == "(None, None): x"  # long enough for the third, were it let in
        assert not waiting.done()
        await open_[0].done_writing()
        assert await waiting == "(None, None): x"


@pytest.mark.rule("SEC-001")
async def test_calls_beyond_what_the_node_takes_are_refused() -> None:
    async with opened(calls_max=2) as door, dialled(door) as channel:
        open_ = [talking(channel), talking(channel)]
        for call in open_:
            await _say_on(call, "x")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(channel, "x")
        assert no_of(caught.value).code == "RESOURCE_EXHAUSTED"
        await open_[0].done_writing()
        await open_[0].read()
        assert await _again(channel) == "(None, None): x"


async def _again(channel: Channel) -> str:
    """The place of a call that ended is free as soon as the server has noticed."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return await say(channel, "x")
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)


@pytest.mark.rule("SEC-001")
async def test_connections_beyond_what_the_node_takes_are_hung_up() -> None:
    async with opened(connections_max=3) as door:
        lines = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(8)]
        for _, writer in lines:
            writer.write(PREFACE)
        heard = await asyncio.gather(*(_first_word(reader) for reader, _ in lines))
        assert 1 <= len([word for word in heard if word]) <= 3
        for _, writer in lines:
            writer.close()


async def _first_word(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        try:
            return await reader.read(1)
        except ConnectionError:
            return b""


# ------------------------------------------------------------------------------------------------ silence


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("said", [PREFACE, PREFACE[:10], b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100])
async def test_a_connection_that_falls_silent_or_speaks_nonsense_is_let_go(said: bytes) -> None:
    async with opened(keepalive_ms=150, keepalive_answer_ms=150, handshake_ms=60_000) as door:
        await _is_let_go(door, said)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE[:24]])
async def test_who_does_not_say_in_time_what_it_wants_is_let_go(said: bytes) -> None:
    async with opened(handshake_ms=200) as door:
        await _is_let_go(door, said)


async def _is_let_go(door: GrpcDoor, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(said)
    async with asyncio.timeout(WITHIN_S):
        await _until_hung_up(reader)
    writer.close()


async def _until_hung_up(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except ConnectionError:
        return b""


async def test_a_stream_on_a_connection_that_falls_silent_ends_at_the_service() -> None:
    """The client's machine is gone without a goodbye: a line in between holds everything back."""
    echo = Echo()
    async with opened(echo, keepalive_ms=150, keepalive_answer_ms=1_000) as door:
        line = _Line(door.port)
        await line.open()
        channel: Channel = grpc.aio.insecure_channel(f"127.0.0.1:{line.port}")
        call = channel.unary_stream(f"/{ECHO}/many")
        echo.act = lambda _: asyncio.Event().wait()
        waiting = call(StringValue(value="x").SerializeToString())
        await until(lambda: echo.heard)
        line.is_cut = True
        await until(lambda: echo.left)
        waiting.cancel()
        await channel.close()
        await line.close()


class _Line:
    """Carries bytes both ways until it is cut; then it carries nothing, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._to, self.port, self.is_cut = port, 0, False
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, on]
        await asyncio.gather(self._pump(reader, on), self._pump(back, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while raw := await reader.read(65_536):
                if not self.is_cut:
                    writer.write(raw)
        except ConnectionError:
            pass


async def test_a_client_that_looks_after_us_as_often_as_we_after_it_is_not_sent_away() -> None:
    async with opened(keepalive_ms=100) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(PREFACE)
        async with asyncio.timeout(WITHIN_S):
            for _ in range(6):
                writer.write(PING)
                assert b"too_many_pings" not in await reader.readuntil(b"holdfast")
                await asyncio.sleep(0.07)
        writer.close()


async def test_a_connection_of_great_age_is_asked_to_come_anew() -> None:
    async with opened(connection_age_ms=100, drain_ms=100) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(PREFACE)
        async with asyncio.timeout(WITHIN_S):
            assert b"max_age" in await _until_hung_up(reader)
        writer.close()


# ------------------------------------------------------------------------------------------------ the way in and out


async def test_closing_lets_a_running_call_finish_and_takes_no_new_one() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def act(text: str) -> None:
        if text == "long":
            begun.set()
            await may_end.wait()

    echo = Echo(act)
    async with opened(echo) as door, dialled(door) as channel:
        running = asyncio.create_task(say(channel, "long", timeout=60))
        await begun.wait()
        closing = asyncio.create_task(door.close(30))
        await door.closing.wait()
        answered = 0
        async with dialled(door) as late:
            code = None
            while code is None:  # what was under way when the closing began may still be answered
                code = await _code_of(say(late, "new", timeout=5))
                answered += code is None
        # A call that arrives at the very moment is cancelled by gRPC, or left alone; all the others find nobody.
        assert code in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")
        async with dialled(door) as later:
            assert await _code_of(say(later, "new", timeout=WITHIN_S)) == "UNAVAILABLE"
        assert echo.heard.count("new") == answered
        assert not closing.done()
        may_end.set()
        assert await running == "(None, None): long"
        await closing


async def _code_of(call: Awaitable[object]) -> str | None:
    """How a call failed, None where it did not."""
    try:
        await call
    except grpc.aio.AioRpcError as fault:
        return no_of(fault).code
    return None


async def test_an_idle_stream_that_waits_for_the_closing_holds_nobody_up() -> None:
    echo = Echo()
    async with opened(echo) as door, dialled(door) as channel:
        echo.act = lambda _: _is_over(door)
        waiting = asyncio.create_task(say_many(channel, "x"))
        await until(lambda: echo.heard)
        async with asyncio.timeout(WITHIN_S):
            await door.close(2 * WITHIN_S)
        assert await waiting == ["(None, None): x"]


async def _is_over(door: GrpcDoor) -> None:
    await door.closing.wait()


async def test_a_call_that_does_not_end_is_ended_after_the_grace() -> None:
    async with opened() as door, dialled(door) as channel:
        call = talking(channel)
        await _say_on(call, "x")
        async with asyncio.timeout(WITHIN_S):
            await door.close(0.1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_closing_twice_or_before_opening_is_no_fault() -> None:
    async with opened() as door:
        await door.close(0)
        await door.close(0)


async def test_two_nodes_do_not_share_a_port() -> None:
    async with opened() as door:
        second = GrpcDoor(GrpcSettings(port=door.port), MachineClock(), [], _anybody, lambda: True)
        with pytest.raises(Unavailable, match=rf"RPC-001: cannot listen on 127\.0\.0\.1:{door.port}"):
            await second.open()


async def _anybody(*_: object) -> object:
    return None


def test_every_setting_can_be_set() -> None:
    assert set(LEAVES) == set(GrpcSettings.__struct_fields__)
