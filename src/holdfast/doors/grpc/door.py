"""The gRPC door: opens with TLS and limits, says how healthy it is, drains before it closes (SEC-001, RPC-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast.core.refusal import Unavailable
from holdfast.doors.grpc.answering import Answering
from holdfast.doors.grpc.health import Health
from holdfast.doors.grpc.identifying import Identify, Identifying
from holdfast.doors.grpc.limiting import Limiting
from holdfast.doors.grpc.service import Service
from holdfast.doors.grpc.settings import GrpcSettings, address_of, options_of, why_not_open
from holdfast.ports import Clock

HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
OPEN_SERVICES: Final = (HEALTH, reflection.SERVICE_NAME)
"""Who asks whether we live, or what can be asked, need not say who it is."""
_log = structlog.get_logger()


class Material(Protocol):
    """What a TLS server shows and checks, as PEM."""

    @property
    def certificate(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    @property
    def client_ca(self) -> bytes | None: ...


class GrpcDoor:
    """A listening gRPC server. It belongs to one event loop and is opened once."""

    def __init__(
        self,
        settings: GrpcSettings,
        clock: Clock,
        services: Sequence[Service],
        identify: Identify,
        is_serving: Callable[[], bool],
        material: Callable[[], Material] | None = None,
    ) -> None:
        """`material` reads the files that the settings name; it is asked again at every handshake."""
        self._settings, self._services, self._material = settings, tuple(services), material
        self._around = (
            Answering(settings.message_bytes_max),
            Limiting(clock, settings),
            Identifying(identify, OPEN_SERVICES),
        )
        self._health = Health([service.name for service in services], is_serving)
        self._server: grpc.aio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        self.port = 0
        self.closing = asyncio.Event()
        """Set when the door begins to close: an idle stream that waits for it ends at once and holds up nobody."""

    async def open(self) -> None:
        """Listen; Unavailable where that would not be safe or the address is taken."""
        if (no := why_not_open(self._settings)) is not None:
            raise Unavailable(no.rule, f"grpc.{no.says}", no.hint)
        server = self._equipped()
        self.port = self._bind(server)
        await self._health.look()
        await server.start()
        self._server = server
        self._looking = asyncio.create_task(self._health.look_forever(), name="grpc health")

    async def close(self, grace_s: float | None = None) -> None:
        """Tell who watches, take no new calls, let running ones end within the grace, hang up."""
        self.closing.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(self._settings.drain_ms / 1000 if grace_s is None else grace_s)
            self._server = None

    def _equipped(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=self._around,
            options=options_of(self._settings),
            maximum_concurrent_rpcs=self._settings.calls_max,
        )
        for service in self._services:
            service.add(service.servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([service.name for service in self._services] + [*OPEN_SERVICES], server)
        return server

    def _bind(self, server: grpc.aio.Server) -> int:
        address = address_of(self._settings)
        credentials = self._credentials()
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise Unavailable("RPC-001", f"cannot listen on {address}", "is another program there? set grpc.port")
        return port

    def _credentials(self) -> grpc.ServerCredentials | None:
        if self._settings.certificate is None:
            return None
        assert self._material is not None, "settings with TLS come with its material"
        shown = self._material()
        return grpc.dynamic_ssl_server_credentials(
            _configuration(shown), _Renewal(self._material, shown), self._settings.client_ca is not None
        )


class _Renewal:
    """Called by gRPC at every handshake, in a thread of its own: new files are used without a restart."""

    def __init__(self, material: Callable[[], Material], shown: Material) -> None:
        self._material, self._shown = material, shown

    def __call__(self) -> Any:
        try:
            found = self._material()
        except Unavailable as fault:  # half replaced, perhaps: the last good ones go on
            _log.warning("the TLS files cannot be used", because=str(fault))
            return None
        if found is self._shown:
            return None
        self._shown = found
        return _configuration(found)


def _configuration(material: Material) -> Any:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.client_ca)
