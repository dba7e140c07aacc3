"""The connection to a node: one gRPC channel for all calls, with or without TLS, and named refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import grpc
import msgspec

from holdfast.core.base.errors import Refused
from holdfast.wire.gen.holdfast.evidence.v1 import evidence_pb2_grpc
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2_grpc
from holdfast.wire.gen.retrovue.evidence.v1 import evidence_pb2 as retrovue_pb2

RpcFault = grpc.aio.AioRpcError
T = TypeVar("T")
MESSAGE_BYTES_MAX: Final = 16 << 20
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # Detects a dead connection while the agent only listens; not more often than the node allows.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # We have our own back-off (EVD-004): gRPC's, which would grow to two minutes, stays below it.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name no pause: how long an attempt may take, with TLS, over a slow link or to a busy node.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    # Two agents in one process have two connections.
    ("grpc.use_local_subchannel_pool", 1),
)
_EOF: Final[object] = grpc.aio.EOF  # type: ignore[attr-defined]
_UNANSWERED_CODES: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)


class ProtocolError(Exception):
    """A stream ended or violated the protocol; it is opened again after a pause."""


class StreamEnded(ProtocolError):
    """The other side has ended the stream normally."""


class RefusedByPeer(ProtocolError):
    """The other side refused, within the stream, by name."""

    def __init__(self, refusal: Refused) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


RETROVUE_STREAM: Final = "/retrovue.evidence.v1.ExecutionEvidenceService/EvidenceStream"


class Tls(msgspec.Struct, frozen=True):
    """PEM: the CA certificates that authenticate the node, and the client certificate and key where the node asks."""

    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def __repr__(self) -> str:
        return "Tls(…)"


def _serialize(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


class NodeConnection:
    """Stubs of the node's services. Created inside the event loop."""

    def __init__(self, address: str, tls: Tls | None) -> None:
        if tls is None:
            self._channel: Any = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
            self._channel = grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        self.provider: Any = provider_pb2_grpc.ProviderServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.evidence: Any = evidence_pb2_grpc.EvidenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.open_retrovue_stream: Any = self._channel.stream_stream(
            RETROVUE_STREAM, _serialize, retrovue_pb2.EvidenceAckFromCore.FromString
        )
        """A stream of v0.1; a message may be bytes already, where it has texts that no message takes."""

    async def close(self) -> None:
        await self._channel.close()


async def await_call(call: Awaitable[T]) -> T:
    """The result of a call. gRPC loses a cancellation that arrives just when the call fails: it is raised here, since a
    caller that retries would never end."""
    try:
        return await call
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


async def read_message(call: Any) -> Any:
    """The next message of a stream; ProtocolError where it has ended normally, gRPC's error where not."""
    try:
        message = await await_call(call.read())
    except asyncio.InvalidStateError as fault:  # it ended before this read
        raise ProtocolError(str(fault)) from fault
    if message is _EOF:
        raise StreamEnded("the node has ended the stream")
    return message


async def write_message(call: Any, message: Any) -> None:
    """Send a message; ProtocolError where the stream has ended."""
    try:
        await await_call(call.write(message))
    except asyncio.InvalidStateError as fault:
        raise ProtocolError(str(fault)) from fault


async def end_writing(call: Any) -> None:
    """Say that nothing more comes; ProtocolError where the stream has ended."""
    try:
        await await_call(call.done_writing())
    except asyncio.InvalidStateError as fault:
        raise ProtocolError(str(fault)) from fault


def refusal_of(fault: RpcFault) -> Refused | None:
    """The node's refusal, with its name and rule; None where it did not answer, or a retry may be answered."""
    trailers: Any = fault.trailing_metadata() or ()
    texts = {str(key): unquote(value) for key, value in trailers if isinstance(value, str)}
    name = texts.get("holdfast-name", "")
    if not name or fault.code() in _UNANSWERED_CODES:
        return None
    return Refused(texts.get("holdfast-rule", ""), fault.details() or "", texts.get("holdfast-hint", ""), name)


_CONNECTION_HINTS: Final = {
    "certificate_verify_failed": "pass the CA that signed the node's certificate: --ca ca.pem",
    "wrong_version_number": "that port speaks no TLS: leave --ca, --certificate and --key out",
    "handshake": "check --ca, --certificate and --key, and that it is the node's gRPC port",
    **dict.fromkeys(
        ("http1.x", "missing selected alpn"),
        "that is the node's HTTP port: pass its gRPC port, 8452 unless its settings say another",
    ),
    "socket closed": "that port may want TLS, pass --ca; or it is not the node's gRPC port",
    "connection refused": "no node listens there: check the address, or start one with `holdfast up`",
}
"""What to do about a connection that fails, by words of gRPC's own message."""


def describe_fault(fault: BaseException) -> str:
    """A fault in a few words, for the log."""
    if isinstance(fault, RpcFault):
        refusal = refusal_of(fault)
        if refusal is not None:
            return str(refusal)
        details = fault.details() or ""
        hint = next((hint for words, hint in _CONNECTION_HINTS.items() if words in details.lower()), "")
        return f"{fault.code().name}: {details}" + (f" ({hint})" if hint else "")
    return str(fault) or type(fault).__name__
