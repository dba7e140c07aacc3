"""A gRPC server behind its front process (SEC-002): who listens where, and how many connections there may be."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc
import structlog

from holdfast.api.front.front_process import FrontProcess
from holdfast.api.front.settings import FrontSettings
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.rpc.unix_socket import SOCKET_PATH_MAX
from holdfast.core.base.errors import Unavailable
from holdfast.system.descriptors import descriptor_limit
from holdfast.system.listening import listen_on

OWN_PART: Final = 2
"""The part of the node's descriptors that gRPC never uses: HTTP, files and stores need them."""
_log = structlog.get_logger()


class ServerFront:
    """The listening socket, the socket behind it, and the process between them."""

    def __init__(self, path: Path) -> None:
        self._path, self.process = path, FrontProcess()
        self._listener: socket.socket | None = None

    def bind(self, server: grpc.aio.Server, settings: GrpcSettings, credentials: grpc.ServerCredentials | None) -> int:
        """The port. OSError where it is in use. Only the node's user can open the socket behind it."""
        if len(os.fsencode(self._path)) > SOCKET_PATH_MAX:
            hint = "use a data folder with a shorter path, or set grpc.front to false"
            raise Unavailable("RPC-001", f"{self._path} is too long for a socket", hint)
        self._listener = listen_on(settings.host, settings.port)
        self._path.unlink(missing_ok=True)  # of a node that was killed
        address = f"unix:{quote(str(self._path))}"
        is_bound = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
        if not is_bound:
            raise OSError
        self._path.chmod(0o600)
        return int(self._listener.getsockname()[1])

    def start(self, settings: GrpcSettings) -> None:
        """Serve the clients that wait and those that come."""
        assert self._listener is not None, "bound before it starts"
        most = min(settings.connections_max, descriptor_limit() // OWN_PART)
        if most < settings.connections_max:
            hint = "raise the limit of open files (ulimit -n)"
            _log.warning("grpc_connections_limited", connections_max=most, wanted=settings.connections_max, hint=hint)
        front = FrontSettings(
            upstream=self._path,
            is_tls=settings.certificate is not None,
            connections_max=most,
            address_connections_max=settings.address_connections_max,
            key_connections_max=settings.key_connections_max,
            opening_ms=settings.handshake_ms,
        )
        self.process.open(self._listener, front)

    def stop_listening(self) -> None:
        """Connections that are open go on."""
        if self._listener is not None:
            self.process.stop_listening()
            self._listener.close()
            self._listener = None

    async def close(self) -> None:
        self.stop_listening()
        await self.process.close()
        self._path.unlink(missing_ok=True)
