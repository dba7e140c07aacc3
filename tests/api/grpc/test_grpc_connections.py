"""Connections of the gRPC API: health, reflection, thousands of idle streams, limits, silence and closing."""

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
from tests.api.grpc.grpc_server import (
    ECHO,
    Channel,
    Echo,
    call_failure,
    connected_channel,
    grpc_server,
    open_talk,
    say,
    say_many,
)

from holdfast.adapters.clock import MachineClock
from holdfast.api.grpc.server import GrpcServer
from holdfast.api.grpc.services.node import node_service
from holdfast.api.grpc.settings import LEAVES, GrpcSettings
from holdfast.core.base.errors import Unavailable

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
    async with grpc_server(is_serving=lambda: phase["is_running"]) as server, connected_channel(server) as channel:
        seen = []
        for phase["is_running"] in (False, True, False):
            answer = await health(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
            seen.append(answer.status)
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]


async def test_who_watches_health_is_notified_of_each_change_and_of_the_end() -> None:
    phase = {"is_running": True}
    async with grpc_server(is_serving=lambda: phase["is_running"]) as server, connected_channel(server) as channel:
        watch = health(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
        seen = [(await watch.read()).status]
        for phase["is_running"] in (False, True):
            seen.append((await watch.read()).status)
        closing = asyncio.create_task(server.close(30))
        seen.append((await watch.read()).status)
        watch.cancel()
        await closing
    assert seen == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]


async def test_health_of_an_unknown_service_is_not_found() -> None:
    with capture_logs() as logs:
        async with grpc_server() as server, connected_channel(server) as channel:
            asked = health(channel).Check(health_pb2.HealthCheckRequest(service="no.Such"), timeout=30)
            assert await _code_of(asked) == "NOT_FOUND"
    assert logs == []


async def ask_reflection(channel: Channel, **asked: Any) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**asked)]), timeout=30)
    return await call.read()


@pytest.mark.rule("SEC-001")
async def test_health_and_reflection_need_no_key() -> None:
    async def must_not_run(*_: object) -> object:
        raise AssertionError("no call is authenticated")

    async with grpc_server(authenticate=must_not_run) as server, connected_channel(server) as channel:
        assert (await health(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)).status == SERVING
        assert await ask_reflection(channel, list_services="")


async def test_reflection_lists_the_services_and_describes_them() -> None:
    async def never(*_: object) -> Any:
        raise AssertionError

    async with grpc_server(services=[node_service(never, never)]) as server, connected_channel(server) as channel:
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
    async with grpc_server() as server, AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(connected_channel(server)) for _ in range(connections)]
        await asyncio.gather(*(say(channel, "warm") for channel in channels))
        threads, kib = threading.active_count(), resident_kib()
        calls = [open_talk(channel) for channel in channels for _ in range(streams)]
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
async def test_a_connection_has_a_limit_of_open_calls_and_the_next_one_waits() -> None:
    async with (
        grpc_server(streams_max=2) as server,
        connected_channel(server) as channel,
        connected_channel(server) as other,
    ):
        open_ = [open_talk(channel), open_talk(channel)]
        for call in open_:
            await _say_on(call, "x")
        third = open_talk(channel)
        waiting = asyncio.create_task(_say_on(third, "x"))
        assert await say(other, "x") == "(None, None): x"  # long enough for the third, were it let in
        assert not waiting.done()
        await open_[0].done_writing()
        assert await waiting == "(None, None): x"


@pytest.mark.rule("SEC-001")
async def test_calls_beyond_what_the_node_takes_are_refused() -> None:
    async with grpc_server(calls_max=2) as server, connected_channel(server) as channel:
        open_ = [open_talk(channel), open_talk(channel)]
        for call in open_:
            await _say_on(call, "x")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(channel, "x")
        assert call_failure(caught.value).code == "RESOURCE_EXHAUSTED"
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
async def test_connections_beyond_the_limit_are_closed() -> None:
    async with grpc_server(connections_max=3) as server:
        lines = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
        for _, writer in lines:
            writer.write(PREFACE)
        heard = await asyncio.gather(*(_first_bytes(reader) for reader, _ in lines))
        assert 1 <= len([word for word in heard if word]) <= 3
        for _, writer in lines:
            writer.close()


async def _first_bytes(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        try:
            return await reader.read(1)
        except ConnectionError:
            return b""


# ------------------------------------------------------------------------------------------------ silence


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("said", [PREFACE, PREFACE[:10], b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100])
async def test_a_connection_that_falls_silent_or_speaks_nonsense_is_closed(said: bytes) -> None:
    async with grpc_server(keepalive_ms=150, keepalive_answer_ms=150, handshake_ms=60_000) as server:
        await _is_closed(server, said)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE[:24]])
async def test_a_client_that_sends_no_request_in_time_is_disconnected(said: bytes) -> None:
    async with grpc_server(handshake_ms=200) as server:
        await _is_closed(server, said)


async def _is_closed(server: GrpcServer, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
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
    async with grpc_server(echo, keepalive_ms=150, keepalive_answer_ms=1_000) as server:
        line = _CuttableProxy(server.port)
        await line.open()
        channel: Channel = grpc.aio.insecure_channel(f"127.0.0.1:{line.port}")
        call = channel.unary_stream(f"/{ECHO}/many")
        echo.behaviour = lambda _: asyncio.Event().wait()
        waiting = call(StringValue(value="x").SerializeToString())
        await until(lambda: echo.heard)
        line.is_cut = True
        await until(lambda: echo.left)
        waiting.cancel()
        await channel.close()
        await line.close()


class _CuttableProxy:
    """Carries bytes both ways until it is cut; then it carries nothing, and neither side is notified."""

    def __init__(self, port: int) -> None:
        self._to, self.port, self.is_cut = port, 0, False
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward_both_ways, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    async def _forward_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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


async def test_a_client_that_pings_as_often_as_the_server_is_not_disconnected() -> None:
    async with grpc_server(keepalive_ms=100) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(PREFACE)
        async with asyncio.timeout(WITHIN_S):
            for _ in range(6):
                writer.write(PING)
                assert b"too_many_pings" not in await reader.readuntil(b"holdfast")
                await asyncio.sleep(0.07)
        writer.close()


async def test_a_connection_of_great_age_is_asked_to_reconnect() -> None:
    async with grpc_server(connection_age_ms=100, drain_ms=100) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
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
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        running = asyncio.create_task(say(channel, "long", timeout=60))
        await begun.wait()
        closing = asyncio.create_task(server.close(30))
        await server.closing.wait()
        answered = 0
        async with connected_channel(server) as late:
            code = None
            while code is None:  # what was under way when the closing began may still be answered
                code = await _code_of(say(late, "new", timeout=5))
                answered += code is None
        # A call that arrives at the very moment is cancelled by gRPC, or left alone; all the others find no server.
        assert code in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")
        async with connected_channel(server) as later:
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
        return call_failure(fault).code
    return None


async def test_an_idle_stream_that_waits_for_the_closing_delays_nothing() -> None:
    echo = Echo()
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        echo.behaviour = lambda _: _is_over(server)
        waiting = asyncio.create_task(say_many(channel, "x"))
        await until(lambda: echo.heard)
        async with asyncio.timeout(WITHIN_S):
            await server.close(2 * WITHIN_S)
        assert await waiting == ["(None, None): x"]


async def _is_over(server: GrpcServer) -> None:
    await server.closing.wait()


async def test_a_call_that_does_not_end_is_ended_after_the_grace() -> None:
    async with grpc_server() as server, connected_channel(server) as channel:
        call = open_talk(channel)
        await _say_on(call, "x")
        async with asyncio.timeout(WITHIN_S):
            await server.close(0.1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_closing_twice_or_before_opening_is_no_fault() -> None:
    async with grpc_server() as server:
        await server.close(0)
        await server.close(0)


async def test_two_nodes_do_not_share_a_port() -> None:
    async with grpc_server() as server:
        second = GrpcServer(GrpcSettings(port=server.port), MachineClock(), [], _anybody, lambda: True)
        with pytest.raises(Unavailable, match=rf"RPC-001: cannot listen on 127\.0\.0\.1:{server.port}"):
            await second.open()


async def _anybody(*_: object) -> object:
    return None


def test_every_setting_can_be_set() -> None:
    assert set(LEAVES) == set(GrpcSettings.__struct_fields__)
