"""Calls of the gRPC API: every kind works, refusals have the names of the other APIs, bad input changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.api.grpc.grpc_server import (
    ECHO,
    CallFailure,
    Channel,
    Echo,
    call_failure,
    connected_channel,
    grpc_server,
    open_talk,
    say,
    say_many,
    say_sum,
    say_talk,
)

from holdfast.api.error_codes import ERROR_CODES, ErrorReply
from holdfast.api.grpc.error_interceptor import trailers_of
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.services.node import HeadView, node_service
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.wire.gen.holdfast.node.v1 import node_pb2, node_pb2_grpc

pytestmark = pytest.mark.rule("RPC-001")


async def say_written(channel: Channel, text: str, token: str | None = None) -> list[str]:
    return await say_talk(channel, text, token, "written")


Call = Callable[[Channel, str, str | None], Awaitable[Any]]
CALLS: list[Call] = [say, say_many, say_sum, say_talk, say_written]


async def refused(call: Awaitable[Any]) -> CallFailure:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return call_failure(caught.value)


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_of_every_kind_is_answered(call: Call) -> None:
    async with grpc_server() as server, connected_channel(server) as channel:
        said = await call(channel, "one two", "oak")
    whole, each = "(None, 'oak'): one two", ["(None, 'oak'): one", "(None, 'oak'): two"]
    assert said == (whole if isinstance(said, str) else each)


@pytest.mark.parametrize("name", ERROR_CODES)
@pytest.mark.parametrize("call", CALLS)
async def test_a_refusal_has_the_code_of_the_one_table_and_all_its_details(call: Call, name: str) -> None:
    no = Refused("ESC-001", "oak has 3 · 5 asked für", "wait 100%41 longer …", name)
    echo = Echo(lambda _: no)
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        told = await refused(call(channel, "x", None))
        assert echo.left == (call is say_many)  # a stream is over before its end is told
    assert told == CallFailure(ERROR_CODES[name].grpc, no.message, name, no.rule, no.hint)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (Unavailable("ENG-002", "the node is stopping", "ask again"), "Unavailable"),
        (Corrupt("ENG-003", "batch 7 is damaged", "restore it"), "Corrupt"),
    ],
)
@pytest.mark.parametrize("call", CALLS)
async def test_what_is_raised_is_reported_by_the_same_table(call: Call, fault: Any, name: str) -> None:
    def act(_: str) -> None:
        raise fault

    with capture_logs() as logs:
        async with grpc_server(Echo(act)) as server, connected_channel(server) as channel:
            told = await refused(call(channel, "x", None))
    assert told == CallFailure(ERROR_CODES[name].grpc, fault.message, name, fault.rule, fault.hint)
    assert logs == []


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("call", CALLS)
async def test_an_unexpected_error_reveals_no_details_and_is_logged(call: Call) -> None:
    def act(_: str) -> None:
        raise ValueError("the password is 1234")

    with capture_logs() as logs:
        async with grpc_server(Echo(act)) as server, connected_channel(server) as channel:
            told = await refused(call(channel, "x", None))
    assert told == CallFailure("INTERNAL", "internal error", "Internal", "", "see the node's log")
    assert [line["event"] for line in logs] == ["call_failed"]


def test_trailers_are_printable_and_short_whatever_a_refusal_says() -> None:
    trailers = trailers_of(ErrorReply("Refused", "ESC-001", "", "\n€" * 10_000))
    assert [key for key, _ in trailers] == ["holdfast-name", "holdfast-rule", "holdfast-hint"]
    assert all(value.isascii() and value.isprintable() for _, value in trailers)
    assert sum(len(value) for _, value in trailers) < 2_000


async def test_a_refusal_that_says_very_much_still_arrives() -> None:
    async with (
        grpc_server(Echo(lambda _: Refused("ESC-001", "€" * 20_000, "€" * 20_000))) as server,
        connected_channel(server) as channel,
    ):
        told = await refused(say(channel, "x"))
    assert (told.code, told.name, told.message[-1]) == ("FAILED_PRECONDITION", "Refused", "…")


async def test_what_came_before_the_refusal_of_a_stream_arrives() -> None:
    def act(text: str) -> Refused | None:
        return Refused("ESC-001", "enough") if text == "three" else None

    echo = Echo(act)
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        call = open_talk(channel)
        seen = []
        for text in ("one", "two"):
            await call.write(_text(text))
            seen.append((await call.read()).value)
        await call.write(_text("three"))
        assert (await refused(call.read())).message == "enough"
    assert seen == ["(None, None): one", "(None, None): two"]


async def test_a_caller_who_leaves_ends_the_stream_and_is_no_failure() -> None:
    waiting = asyncio.Event()

    async def act(_: str) -> None:
        waiting.set()
        await asyncio.Event().wait()

    echo = Echo(act)
    with capture_logs() as logs:
        async with grpc_server(echo) as server, connected_channel(server) as channel:
            call = asyncio.create_task(say_many(channel, "x"))
            await waiting.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            async with asyncio.timeout(20):
                while not echo.left:
                    await asyncio.sleep(0.01)
    assert logs == []


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
@pytest.mark.parametrize("path", ["/holdfast.test.Echo/nothing", "/no.Such/thing", "/", "/x"])
async def test_an_unknown_method_is_refused_by_name(path: str, kind: str) -> None:
    async with grpc_server() as server, connected_channel(server) as channel:
        method = getattr(channel, kind)(path)
        # A client that still writes when the refusal comes may report its own failure to write instead.
        told = await refused(method(b"x", timeout=30) if kind == "unary_unary" else method(timeout=30).read())
    assert told == CallFailure(
        "UNIMPLEMENTED", f"no method {path!r}", "MethodNotFound", "RPC-001", "reflection lists the services"
    )


RAW = {"one": "unary_unary", "many": "unary_stream", "sum": "stream_unary", "talk": "stream_stream"}


async def send_raw(channel: Channel, name: str, raw: bytes) -> CallFailure:
    method = getattr(channel, RAW[name])(f"/{ECHO}/{name}")
    call = method(iter([raw]) if RAW[name].startswith("stream") else raw, timeout=30)
    return await refused(call.read() if RAW[name].endswith("stream") else call)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("name", RAW)
async def test_bytes_that_are_no_message_are_refused_and_never_reach_the_service(name: str) -> None:
    echo = Echo()
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        told = await send_raw(channel, name, b"\xff\xff\xff")
        assert await say(channel, "still here") == "(None, None): still here"
    assert (told.code, told.name, told.rule) == ("INVALID_ARGUMENT", "ParseError", "RPC-001")
    assert echo.heard == ["still here"]


@given(raw=st.binary(max_size=40))
def test_no_bytes_at_all_are_an_unknown_error(raw: bytes) -> None:
    async def ask() -> None:
        async with grpc_server() as server, connected_channel(server) as channel:
            unary = channel.unary_unary(f"/{ECHO}/one")(raw, timeout=30)
            stream = channel.stream_stream(f"/{ECHO}/talk")(iter([raw]), timeout=30).read()
            for said in await asyncio.gather(unary, stream, return_exceptions=True):
                assert isinstance(said, bytes) or call_failure(said).name == "ParseError"  # type: ignore[arg-type]

    asyncio.run(ask())


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize(
    ("length", "is_taken", "told_by"),
    [(4_095, True, ""), (4_096, True, ""), (4_097, False, "TooLarge"), (9_000, False, "")],
)
async def test_a_message_over_the_limit_is_refused(name: str, length: int, is_taken: bool, told_by: str) -> None:
    echo = Echo()
    raw = _text("x" * (length - 3)).SerializeToString()
    assert len(raw) == length
    async with grpc_server(echo, message_bytes_max=4_096) as server, connected_channel(server) as channel:
        if is_taken:
            method = getattr(channel, RAW[name])(f"/{ECHO}/{name}")
            call = method(iter([raw]) if RAW[name].startswith("stream") else raw, timeout=30)
            assert await (call.read() if RAW[name].endswith("stream") else call)
        else:
            told = await send_raw(channel, name, raw)
            assert (told.code, told.name) == ("RESOURCE_EXHAUSTED", told_by)
    # A stream that gRPC cuts off looks, for a moment, like one that has ended: what it held so far may be heard.
    assert len([text for text in echo.heard if text]) == is_taken


# ------------------------------------------------------------------------------------------------ who calls


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("call", CALLS)
async def test_who_is_not_known_never_reaches_the_service(call: Call) -> None:
    echo = Echo()
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        told = await refused(call(channel, "", "stranger"))
    assert told == CallFailure("UNAUTHENTICATED", "no such key", "Unauthorized", "SEC-001", "make one")
    assert echo.heard == []


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    "shown", ["hf_secret", "Basic hf_secret", "Bearer ", "Bearer hf_secret x", "Bearer " + "x" * 1025]
)
async def test_a_malformed_authorization_is_refused_and_not_repeated(shown: str) -> None:
    echo = Echo()
    async with grpc_server(echo) as server, connected_channel(server) as channel:
        method = channel.unary_unary(f"/{ECHO}/one")
        told = await refused(method(b"", metadata=(("authorization", shown),), timeout=30))
        twice = (("authorization", "Bearer oak"), ("authorization", "Bearer elm"))
        assert (await refused(method(b"", metadata=twice, timeout=30))).name == "Unauthorized"
    assert (told.code, told.name, told.rule) == ("UNAUTHENTICATED", "Unauthorized", "SEC-001")
    assert "hf_secret" not in repr(told)
    assert echo.heard == []


@pytest.mark.rule("SEC-001")
async def test_callers_at_the_same_time_are_not_mixed_up() -> None:
    async def act(_: str) -> None:
        await asyncio.sleep(0)

    async with grpc_server(Echo(act)) as server, connected_channel(server) as channel:
        names = [f"tree-{number}" for number in range(50)]
        said = await asyncio.gather(*(say(channel, "x", name) for name in names))
    assert said == [f"(None, '{name}'): x" for name in names]


# ------------------------------------------------------------------------------------------------ the node's service


def node(status: Any, head: Any) -> GrpcService:
    async def ask_status() -> Any:
        return status

    async def ask_head() -> Any:
        return head

    return node_service(ask_status, ask_head)


def stub_of(channel: Channel) -> Any:
    return node_pb2_grpc.NodeServiceStub(channel)  # type: ignore[no-untyped-call]


async def test_the_node_reports_its_status_and_its_head() -> None:
    fields = {"version": "0.3.0", "network": "development", "chain_id": 1337, "role": "owner", "phase": "running"}
    counts = {"event": 2**64 - 1, "batch": 7, "term": 2}
    service = node(SimpleNamespace(**fields, **counts, accounts=5), HeadView(9, b"\x07" * 32, 1_700_000_000_000))
    async with grpc_server(services=[service]) as server, connected_channel(server) as channel:
        status = await stub_of(channel).GetStatus(node_pb2.GetStatusRequest(), timeout=30)
        head = await stub_of(channel).GetHead(node_pb2.GetHeadRequest(), timeout=30)
    assert status == node_pb2.GetStatusResponse(**fields, **counts)  # type: ignore[arg-type]
    assert head == node_pb2.GetHeadResponse(height=9, hash=b"\x07" * 32, time_ms=1_700_000_000_000)


async def test_a_node_without_a_head_says_so() -> None:
    no = Refused("RPC-001", "no block is sealed yet", name="NotFound")
    async with grpc_server(services=[node(no, no)]) as server, connected_channel(server) as channel:
        assert (await refused(stub_of(channel).GetHead(node_pb2.GetHeadRequest(), timeout=30))).code == "NOT_FOUND"
        assert (await refused(stub_of(channel).GetStatus(node_pb2.GetStatusRequest(), timeout=30))).code == "NOT_FOUND"


def _text(value: str) -> StringValue:
    return StringValue(value=value)
