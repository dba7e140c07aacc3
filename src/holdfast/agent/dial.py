"""The connection to the node: one channel for all calls, with TLS where it is given, and named refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import grpc

from holdfast.agent.settings import Tls
from holdfast.core.refusal import Refused
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2_grpc as legacy_pb2_grpc

Fault = grpc.aio.AioRpcError
T = TypeVar("T")
MESSAGE_BYTES_MAX: Final = 16 << 20
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A dead connection is noticed while the agent only listens; no more often than the node allows.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # The back-off is ours (EVD-004): gRPC's own, which grows to two minutes, stays below it.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Two agents in one process are two connections.
    ("grpc.use_local_subchannel_pool", 1),
)
_EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]
_GONE: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


class Broken(Exception):
    """A stream ended or said what it must not; it is opened again after a pause."""


class TurnedAway(Broken):
    """The other side said no, inside of the stream, by name."""

    def __init__(self, no: Refused) -> None:
        super().__init__(str(no))
        self.no = no


class Dial:
    """Stubs of the node's services. Made inside the event loop."""

    def __init__(self, address: str, tls: Tls | None) -> None:
        if tls is None:
            self._channel: Any = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
            self._channel = grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        self.provider: Any = provider_pb2_grpc.ProviderServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.evidence: Any = evidence_pb2_grpc.EvidenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.legacy: Any = legacy_pb2_grpc.ExecutionEvidenceServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        await self._channel.close()


async def answered(call: Awaitable[T]) -> T:
    """What a call comes to. gRPC forgets a cancellation that meets a call just when it fails: it is raised all the
    same, or who tries again and again would never end."""
    try:
        return await call
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def read_from(call: Any) -> Any:
    """The next message of a stream; Broken where it has ended in good order, gRPC's error where not."""
    try:
        message = await answered(call.read())
    except asyncio.InvalidStateError as fault:  # it has ended before, while nobody read
        raise Broken(str(fault)) from fault
    if message is _EOF:
        raise Broken("the node has ended the stream")
    return message


async def write_to(call: Any, message: Any) -> None:
    """The other way; Broken where the stream has ended meanwhile."""
    try:
        await answered(call.write(message))
    except asyncio.InvalidStateError as fault:
        raise Broken(str(fault)) from fault


def refusal_of(fault: Fault) -> Refused | None:
    """The node's no, with its name and rule; None where the node did not answer or may answer otherwise next time."""
    trailers: Any = fault.trailing_metadata() or ()
    told = {str(key): unquote(value) for key, value in trailers if isinstance(value, str)}
    name = told.get("holdfast-name", "")
    if not name or fault.code() in _GONE:
        return None
    return Refused(told.get("holdfast-rule", ""), fault.details() or "", told.get("holdfast-hint", ""), name)


def said(fault: BaseException) -> str:
    """A fault in a few words, for the log."""
    if isinstance(fault, Fault):
        no = refusal_of(fault)
        return str(no) if no is not None else f"{fault.code().name}: {fault.details()}"
    return str(fault) or type(fault).__name__
