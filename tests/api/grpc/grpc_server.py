"""A real gRPC server on a loopback port, a service with a call of every kind, and TLS folders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.wrappers_pb2 import StringValue
from tests.loopback_ports import free_port

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.authority import CertificateFiles, make_client_certificate, make_tls
from holdfast.adapters.keys.certificate import TlsFiles
from holdfast.api.grpc.auth_interceptor import Authenticate, PeerCertificate, caller
from holdfast.api.grpc.server import GrpcServer
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.ports import Clock

NOW_MS = int(time.time() * 1000)
DAY_MS = 24 * 3_600_000
ECHO = "holdfast.test.Echo"
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
Behaviour = Callable[[str], Any]
Channel = Any
"""The stubs for the type checker know an older one."""


class Echo:
    """Answers with the caller and the text; a behaviour given to it may refuse, raise or wait instead."""

    def __init__(self, behaviour: Behaviour = lambda text: None) -> None:
        self.behaviour, self.heard, self.left = behaviour, list[str](), 0

    async def _say(self, text: str) -> Any:
        self.heard.append(text)
        acted = self.behaviour(text)
        if asyncio.iscoroutine(acted):
            acted = await acted
        return StringValue(value=f"{caller()}: {text}") if acted is None else acted

    async def one(self, request: StringValue, _: Any) -> Any:
        return await self._say(request.value)

    async def many(self, request: StringValue, _: Any) -> AsyncIterator[Any]:
        try:
            for word in request.value.split():
                yield await self._say(word)
        finally:
            self.left += 1

    async def sum(self, requests: AsyncIterator[StringValue], _: Any) -> Any:
        return await self._say(" ".join([request.value async for request in requests]))

    async def talk(self, requests: AsyncIterator[StringValue], _: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield await self._say(request.value)

    async def written(self, requests: AsyncIterator[StringValue], context: Any) -> Refused | None:
        """A stream that is written piece by piece."""
        async for request in requests:
            said = await self._say(request.value)
            if isinstance(said, Refused):
                return said
            await context.write(said)
        return None


_KINDS = {
    "one": grpc.unary_unary_rpc_method_handler,
    "many": grpc.unary_stream_rpc_method_handler,
    "sum": grpc.stream_unary_rpc_method_handler,
    "talk": grpc.stream_stream_rpc_method_handler,
    "written": grpc.stream_stream_rpc_method_handler,
}


def add_echo(echo: Echo, server: Any) -> None:
    handlers: dict[str, Any] = {
        name: make(getattr(echo, name), StringValue.FromString, StringValue.SerializeToString)
        for name, make in _KINDS.items()
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(ECHO, handlers)])


async def by_name(token: str | None, certificate: PeerCertificate | None) -> object:
    """The token `stranger` is refused; everybody else is who they claim to be."""
    if token == "stranger":
        return Refused("SEC-001", "no such key", "make one", "Unauthorized")
    return (certificate.name if certificate else None, token)


@asynccontextmanager
async def grpc_server(
    echo: Echo | None = None,
    tls: CertificateFiles | None = None,
    client_ca: Path | None = None,
    is_serving: Callable[[], bool] = lambda: True,
    authenticate: Authenticate = by_name,
    services: Sequence[GrpcService] | None = None,
    clock: Clock | None = None,
    front_socket: Path | None = None,
    **told: Any,
) -> AsyncIterator[GrpcServer]:
    """A server on a free port; closed at once when the test is done, whatever still runs."""
    if tls is not None:
        told |= {"certificate": tls.certificate, "key": tls.key, "client_ca": client_ca}
    material = TlsFiles(tls.certificate, tls.key, client_ca).load if tls is not None else None
    plugged = [GrpcService(ECHO, echo or Echo(), add_echo)] if services is None else services
    for _ in range(5):
        settings = GrpcSettings(**({"port": free_port()} | told))
        clock = clock or MachineClock()
        server = GrpcServer(settings, clock, plugged, authenticate, is_serving, material, front_socket)
        try:
            await server.open()
            break
        except Unavailable as fault:
            if "cannot listen" not in fault.message:
                raise
    else:
        raise AssertionError("no free port")
    try:
        yield server
    finally:
        await server.close(0)


@asynccontextmanager
async def connected_channel(
    server: GrpcServer, authority: Path | None = None, shown: CertificateFiles | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Channel]:
    """A channel with a connection of its own, with TLS where an authority is trusted."""
    target = f"{host}:{server.port}"
    if authority is None:
        channel = grpc.aio.insecure_channel(target, options=[OWN_CONNECTION])
    else:
        key, certificate = (shown.key.read_bytes(), shown.certificate.read_bytes()) if shown else (None, None)
        credentials = grpc.ssl_channel_credentials(authority.read_bytes(), key, certificate)
        channel = grpc.aio.secure_channel(target, credentials, options=[OWN_CONNECTION])
    async with channel:
        yield channel


def _method(channel: Channel, kind: str, name: str) -> Any:
    make = getattr(channel, kind)
    return make(f"/{ECHO}/{name}", StringValue.SerializeToString, StringValue.FromString)


async def say(channel: Channel, text: str, token: str | None = None, timeout: float = 30) -> str:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    answer = await _method(channel, "unary_unary", "one")(StringValue(value=text), metadata=metadata, timeout=timeout)
    return str(answer.value)


async def say_many(channel: Channel, text: str, token: str | None = None) -> list[str]:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call = _method(channel, "unary_stream", "many")(StringValue(value=text), metadata=metadata, timeout=30)
    return [answer.value async for answer in call]


async def say_sum(channel: Channel, text: str, token: str | None = None) -> str:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    words = [StringValue(value=word) for word in text.split()]
    answer = await _method(channel, "stream_unary", "sum")(iter(words), metadata=metadata, timeout=30)
    return str(answer.value)


async def say_talk(channel: Channel, text: str, token: str | None = None, name: str = "talk") -> list[str]:
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    words = [StringValue(value=word) for word in text.split()]
    call = _method(channel, "stream_stream", name)(iter(words), metadata=metadata, timeout=30)
    return [answer.value async for answer in call]


def open_talk(channel: Channel) -> Any:
    """A stream in both directions that stays open."""
    return _method(channel, "stream_stream", "talk")(timeout=60)


class CallFailure(msgspec.Struct, frozen=True):
    """What a caller is told."""

    code: str
    message: str
    name: str = ""
    rule: str = ""
    hint: str = ""


def call_failure(fault: grpc.aio.AioRpcError) -> CallFailure:
    """The status and the trailers of a failed call."""
    return failure_of(fault.code().name, fault.details(), fault.trailing_metadata())


def failure_of(code: str, message: str | None, metadata: Any) -> CallFailure:
    trailers = {key: unquote(str(value)) for key, value in metadata or ()}
    named = (trailers.get(f"holdfast-{key}", "") for key in ("name", "rule", "hint"))
    return CallFailure(code, message or "", *named)


def tls_folder(folder: Path, *clients: str) -> CertificateFiles:
    """An authority with a server's certificate and some clients'."""
    made = make_tls(folder, NOW_MS)
    assert isinstance(made, CertificateFiles)
    for name in clients:
        client_certificate(folder, name)
    return made


def client_certificate(folder: Path, name: str, now_ms: int = NOW_MS, days: int = 2) -> CertificateFiles:
    made = make_client_certificate(folder, name, now_ms, days)
    assert isinstance(made, CertificateFiles), made
    return made
