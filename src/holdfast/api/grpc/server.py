"""The gRPC server: listens with TLS and limits, reports its health, drains before it closes (SEC-001, RPC-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast.api.grpc.auth_interceptor import Authenticate, AuthInterceptor
from holdfast.api.grpc.error_interceptor import ErrorInterceptor
from holdfast.api.grpc.health import HealthService
from holdfast.api.grpc.rate_interceptor import RateInterceptor
from holdfast.api.grpc.server_front import ServerFront
from holdfast.api.grpc.service import GrpcService
from holdfast.api.grpc.settings import GrpcSettings, address_of, options_of, why_not_open
from holdfast.api.tls_reloader import TlsReloader
from holdfast.core.base.errors import Unavailable
from holdfast.ports import Clock

HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
OPEN_SERVICES: Final = (HEALTH, reflection.SERVICE_NAME)
"""Health and reflection need no authentication."""


class HasTlsMaterial(Protocol):
    """Certificate, key and client CA of a TLS server, as PEM."""

    @property
    def certificate(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    @property
    def client_ca(self) -> bytes | None: ...


class GrpcServer:
    """One listening address. It belongs to one event loop and is opened once."""

    def __init__(
        self,
        settings: GrpcSettings,
        clock: Clock,
        services: Sequence[GrpcService],
        authenticate: Authenticate,
        is_serving: Callable[[], bool],
        load_tls: Callable[[], HasTlsMaterial] | None = None,
        front_socket: Path | None = None,
    ) -> None:
        """`load_tls` reads the files that the settings name; it is called again at every handshake.

        With `front_socket` a front process accepts the connections and forwards them to that socket.
        """
        self._settings, self._services, self._load_tls = settings, tuple(services), load_tls
        self.front = ServerFront(front_socket) if front_socket is not None else None
        self._interceptors = (
            ErrorInterceptor(settings.message_bytes_max),
            RateInterceptor(clock, settings),
            AuthInterceptor(authenticate, OPEN_SERVICES, self.on_proven),
        )
        self._health = HealthService([service.name for service in services], is_serving)
        self._server: grpc.aio.Server | None = None
        self._health_task: asyncio.Task[None] | None = None
        self.port = 0
        self.closing = asyncio.Event()
        """Set when the server begins to close: idle streams that wait for it end at once and delay nothing."""

    async def open(self) -> None:
        """Listen; Unavailable where that would not be safe or the address is in use."""
        if (refusal := why_not_open(self._settings)) is not None:
            raise Unavailable(refusal.rule, f"grpc.{refusal.message}", refusal.hint)
        server = self._build_server()
        self.port = self._bind(server)
        await self._health.refresh()
        await server.start()
        if self.front is not None:
            self.front.start(self._settings)
        self._server = server
        self._health_task = asyncio.create_task(self._health.refresh_forever(), name="grpc health")

    async def close(self, grace_s: float | None = None) -> None:
        """Report NOT_SERVING, accept no new calls, let running calls end within the grace period, disconnect."""
        self.closing.set()
        if self._health_task is not None:
            self._health_task.cancel()
            await asyncio.gather(self._health_task, return_exceptions=True)
        if self.front is not None:
            self.front.stop_listening()
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(self._settings.drain_ms / 1000 if grace_s is None else grace_s)
            self._server = None
        if self.front is not None:
            await self.front.close()

    def on_proven(self, peer: str, key: str) -> None:
        """A client has shown who it is: its connection has a place of its own (SEC-002)."""
        if self.front is not None:
            self.front.process.on_proven(peer, key)

    def _build_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=self._interceptors,
            options=options_of(self._settings),
            maximum_concurrent_rpcs=self._settings.calls_max,
        )
        for service in self._services:
            service.register(service.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([service.name for service in self._services] + [*OPEN_SERVICES], server)
        return server

    def _bind(self, server: grpc.aio.Server) -> int:
        address = address_of(self._settings)
        credentials = self._credentials()
        try:
            if self.front is not None:
                return self.front.bind(server, self._settings, credentials)
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except (RuntimeError, OSError):
            port = 0
        if port == 0:
            raise Unavailable("RPC-001", f"cannot listen on {address}", "another program may use it: set grpc.port")
        return port

    def _credentials(self) -> grpc.ServerCredentials | None:
        if self._settings.certificate is None:
            return None
        assert self._load_tls is not None, "TLS settings come with a loader of its files"
        material = TlsReloader(self._load_tls)
        return grpc.dynamic_ssl_server_credentials(
            _configuration(material.current), _CredentialsFetcher(material), self._settings.client_ca is not None
        )


class _CredentialsFetcher:
    """Called by gRPC at every handshake, in a thread of its own: new files are used without a restart."""

    def __init__(self, material: TlsReloader[HasTlsMaterial]) -> None:
        self._material, self._used = material, material.current

    def __call__(self) -> Any:
        material = self._material.reload()
        if material is self._used:
            return None
        self._used = material
        return _configuration(material)


def _configuration(material: HasTlsMaterial) -> Any:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.client_ca)
