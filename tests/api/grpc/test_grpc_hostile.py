"""Hostile messages to every gRPC method, made from the .proto files: right in form, spoilt, or bare noise.

No answer says that the node failed inside, what was refused has changed nothing, and honest callers are still served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.grpc.agent_driver import EOF, PATIENCE_S, AgentDriver, AgentNode, WorkStreamDriver
from tests.api.grpc.grpc_server import (
    CallFailure,
    Channel,
    call_failure,
    connected_channel,
    failure_of,
    grpc_server,
)
from tests.counts import counts
from tests.simulation.world import World, stop_engine

from holdfast.adapters.clock import MachineClock
from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.grpc.services.result import result_service
from holdfast.api.grpc.settings import LegacyEvidence
from holdfast.core.base.canonical import canonical
from holdfast.core.proof.envelope import signed_bytes
from holdfast.core.state_digest import digest
from holdfast.wire import signed_messages
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb
from holdfast.wire.gen.holdfast.result.v1 import result_pb2
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as retrovue_pb2

pytestmark = [pytest.mark.rule("SEC-001"), pytest.mark.rule("RPC-001")]
FILES: Any = (pb, result_pb2, evidence_pb2, retrovue_pb2)
METHODS: list[MethodDescriptor] = [
    method for file in FILES for service in file.DESCRIPTOR.services_by_name.values() for method in service.methods
]
MANY = 1_000_000
FAILED_TO_WRITE = "Internal error from Core"
"""What this client says instead of the answer, where that came while it was still writing."""
DEPTH_MAX = 3
quietly = settings(
    max_examples=counts(200, 3_000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# ------------------------------------------------------------------------------------------------ messages

IDS = [bytes([n]) * 32 for n in range(3)]
VALUES = {
    FieldDescriptor.TYPE_BYTES: st.sampled_from([*IDS, b"", bytes(64), b"x" * 70_000]) | st.binary(max_size=70),
    FieldDescriptor.TYPE_STRING: st.sampled_from(["", "attested", "oak", "../x", "x" * 300]) | st.text(max_size=8),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 3) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1]),
    FieldDescriptor.TYPE_INT64: st.integers(-2, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 3) | st.just(2**32 - 1),
    FieldDescriptor.TYPE_INT32: st.integers(-2, 3) | st.just(2**31 - 1),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 5),
}


@st.composite
def fitting(draw: st.DrawFn, kind: Descriptor, depth: int = 0) -> Any:
    """A message as the file describes it, with ids that meet."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if depth == DEPTH_MAX or draw(st.booleans()):
            continue
        value = VALUES[field.type] if field.message_type is None else fitting(field.message_type, depth + 1)
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(value, max_size=3)))
        elif field.message_type is None:
            setattr(message, field.name, draw(value))
        else:
            getattr(message, field.name).CopyFrom(draw(value))
    return message


@st.composite
def spoilt(draw: st.DrawFn, kind: Descriptor) -> bytes:
    raw = bytes(draw(fitting(kind)).SerializeToString())
    at = draw(st.integers(0, len(raw)))
    return raw[:at] + draw(st.binary(max_size=4)) + raw[at + draw(st.integers(0, 4)) :]


def raw_messages(kind: Descriptor) -> st.SearchStrategy[bytes]:
    return fitting(kind).map(lambda message: message.SerializeToString()) | spoilt(kind) | st.binary(max_size=60)


class Said(NamedTuple):
    """A call: which, the bytes of its messages, and the token that is shown."""

    method: MethodDescriptor
    messages: list[bytes]
    token: str | None


@st.composite
def calls(draw: st.DrawFn) -> Said:
    method = draw(st.sampled_from(METHODS))
    least, most = (0, 4) if method.client_streaming else (1, 1)
    messages = draw(st.lists(raw_messages(method.input_type), min_size=least, max_size=most))
    return Said(method, messages, draw(st.none() | st.sampled_from(["", "hf_ab_cd", "x" * 5_000])))


# ------------------------------------------------------------------------------------------------ sending


class HostileNode:
    """A node with every service, and a provider that is at work beside the attack."""

    def __init__(self, node: AgentNode, channel: Channel, honest: WorkStreamDriver) -> None:
        self.node, self.channel, self.honest = node, channel, honest

    def digest(self) -> bytes:
        return digest(self.node.engine.undurable_state)

    async def send(self, said: Said) -> CallFailure | None:
        """How the call ends; None where it was answered. What is half-closed must end, whatever was said."""
        method, names = said.method, {False: "unary", True: "stream"}
        make = getattr(self.channel, f"{names[method.client_streaming]}_{names[method.server_streaming]}")
        open_call = make(f"/{method.containing_service.full_name}/{method.name}")  # bytes both ways
        metadata = (("authorization", f"Bearer {said.token}"),) if said.token is not None else ()
        async with asyncio.timeout(PATIENCE_S):
            if not method.client_streaming:
                call = open_call(said.messages[0], metadata=metadata)
            else:
                call = open_call(metadata=metadata)
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # it may have its answer already
                    for raw in said.messages:
                        await call.write(raw)
                    await call.done_writing()
            while method.server_streaming and await _read(call) is not EOF:
                pass
            code, trailers = await call.code(), await call.trailing_metadata()
            if code is grpc.StatusCode.OK:
                return None
            failure = failure_of(code.name, await call.details(), trailers)
            return failure if failure.message != FAILED_TO_WRITE else None


async def _read(call: Any) -> Any:
    try:
        return await call.read()
    except grpc.aio.AioRpcError:
        return EOF


@asynccontextmanager
async def hostile_node(folder: Path) -> AsyncIterator[HostileNode]:
    world = World()
    engine = await world.started()
    node = AgentNode(engine, world, folder, LegacyEvidence.OPEN)
    authenticator = TokenAuthenticator(node.access, MachineClock())

    async def authenticate(token: str | None, _: object) -> object:
        return await authenticator.authenticate(token)

    services = [*node.services, result_service(node.access)]
    async with (
        grpc_server(services=services, authenticate=authenticate, address_unproven_max=MANY) as server,
        connected_channel(server) as channel,
    ):
        node.agent_context.close_with(server.closing)
        node.server, node.channel = server, channel
        yield HostileNode(node, channel, await AgentDriver(node).start_work())
    await stop_engine(engine)


@pytest.fixture
async def hostile(tmp_path: Path) -> AsyncIterator[HostileNode]:
    async with hostile_node(tmp_path) as node:
        yield node


def check_named(failure: CallFailure) -> None:
    assert failure.name, failure
    assert failure.name != "Internal", failure
    assert ERROR_CODES[failure.name].grpc == failure.code


@quietly
@given(calls())
async def test_no_message_makes_the_node_fail_inside_or_changes_what_it_refuses(
    hostile: HostileNode, said: Said
) -> None:
    before = hostile.digest()
    with structlog.testing.capture_logs() as log:
        refused = await hostile.send(said)
    assert [entry for entry in log if entry["event"] == "call_failed"] == []
    if refused is not None:
        check_named(refused)
        if (
            said.method.containing_service.file.package != retrovue_pb2.DESCRIPTOR.package
        ):  # there the records before it count
            assert hostile.digest() == before


signed_bodies = st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.binary(max_size=33) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
).map(canonical)


async def send_signed(agent: AgentDriver, kind: str, body: bytes) -> None:
    """A body with the signature that it should have."""
    sign, stub = agent.key.sign, agent.stub
    async with asyncio.timeout(PATIENCE_S):
        if kind == "acts":
            stream = await agent.open()
            signed = pb.SignedActs(body=body, signature=sign(signed_messages.to_sign_acts(body)))
            await stream.call.write(pb.WorkRequest(acts=signed))
            await stream.call.read()
        elif kind == "register":
            signature = sign(signed_messages.to_sign_registration(body))
            await stub.Register(pb.RegisterRequest(body=body, signature=signature))
        else:
            signature = sign(signed_bytes(1, "attested", body))
            await stub.Complete(
                pb.CompleteRequest(type=1, method="attested", body=body, public=agent.key.public, signature=signature)
            )


@quietly
@given(signed_bodies, st.sampled_from(["acts", "register", "complete"]))
async def test_noise_with_a_good_signature_is_refused_by_its_name(hostile: HostileNode, body: bytes, kind: str) -> None:
    before = hostile.digest()
    with structlog.testing.capture_logs() as log, pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_signed(hostile.honest.agent, kind, body)
    assert [entry for entry in log if entry["event"] == "call_failed"] == []
    check_named(call_failure(caught.value))
    assert hostile.digest() == before


async def test_after_all_of_it_an_honest_provider_is_served(hostile: HostileNode) -> None:
    for method in METHODS:
        await hostile.send(Said(method, [b"\xff" * 50], None))
    offer = await hostile.honest.agent.lease_job(hostile.honest)
    await hostile.honest.agent.put(offer, b"out")
    await hostile.honest.agent.complete(hostile.honest.agent.completion(offer, b"out"))
    assert hostile.node.lease(offer.lease_id) is not None
