"""The network APIs: whether their ports are free or ours, and how long their certificates are valid (SEC-001)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.keys.certificate import TlsFiles, describe_file, why_not_valid
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.http.settings import HttpSettings
from holdfast.cli.doctor.finding import HostFinding
from holdfast.cli.terminal.clock import now_ms
from holdfast.client import SOCKET_NAME
from holdfast.config import Config
from holdfast.core.base.errors import Unavailable
from holdfast.core.policy import DAY_MS

RENEW_DAYS: Final = 30
_PEER_CREDENTIALS: Final = struct.Struct("3i")
"""What the kernel reports about the peer of a Unix socket: pid, uid, gid."""


def check_endpoints(config: Config, is_up: bool) -> Iterator[HostFinding]:
    """Every network API that is enabled; the others are reported as disabled."""
    for name, settings in (("http", config.http), ("grpc", config.grpc)):
        if settings is None:
            yield HostFinding(True, name, "disabled", f"{name}.enabled = true turns it on")
            continue
        yield _check_port(name, settings, _owner_pid(config.data) if is_up else None, is_up)
        if settings.certificate is not None and settings.key is not None:
            yield from _check_certificate(name, settings.certificate, settings.key, settings.client_ca)


# ------------------------------------------------------------------------------------------------ ports


def _check_port(name: str, settings: HttpSettings | GrpcSettings, owner: int | None, is_up: bool) -> HostFinding:
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        return HostFinding(True, name, "takes any free port", "set one that clients can know")
    try:
        is_free = _is_free(settings.host, settings.port)
    except OSError as fault:
        return HostFinding(
            False, name, f"{where}: {fault.strerror or fault}", f"set {name}.host to an address of this machine"
        )
    if is_free and is_up:
        return HostFinding(
            False, name, f"{where}: the node is up but does not listen there", "restart it with these settings"
        )
    if is_free:
        return HostFinding(True, name, f"{where} is free")
    if owner is not None and _is_listening(owner, settings.port) is not False:
        return HostFinding(True, name, f"{where} is open, by this node")
    return HostFinding(False, name, f"{where} is taken by another program", f"stop that, or set {name}.port")


def _is_free(host: str, port: int) -> bool:
    """Whether the node could listen there."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, number) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno not in _ADDRESS_IN_USE:
                raise
            return False
    return True


_ADDRESS_IN_USE: Final = frozenset({98, 48})
"""EADDRINUSE on Linux and on macOS."""


def _owner_pid(data: Path) -> int | None:
    """The process that listens on the node's socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
        peer.settimeout(1.0)
        peer.connect(str(data / SOCKET_NAME))
        pid, _, _ = _PEER_CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        )
        return int(pid)
    return None


def _is_listening(pid: int, port: int) -> bool | None:
    """Whether this process listens on the port; None if the system does not tell."""
    inodes: set[str] = set()
    try:
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
        return any(_links_to(file, inodes) for file in Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError, IndexError):
        return None


def _links_to(file: Path, names: set[str]) -> bool:
    with suppress(OSError):
        return str(file.readlink()) in names
    return False


# ------------------------------------------------------------------------------------------------ certificates


def _check_certificate(name: str, certificate: Path, key: Path, client_ca: Path | None) -> Iterator[HostFinding]:
    what, at_ms = f"{name} TLS", now_ms()
    try:
        TlsFiles(certificate, key, client_ca).load()
        details = describe_file(certificate)
    except Unavailable as fault:
        yield HostFinding(False, what, fault.message, fault.hint)
        return
    days = (details.until_ms - at_ms) // DAY_MS
    renew = f"move {certificate.name} and {key.name} away, then holdfast tls server creates new ones"
    if refusal := why_not_valid(details, at_ms):
        yield HostFinding(False, what, refusal.message, renew)
    elif days < RENEW_DAYS:
        yield HostFinding(False, what, f"{certificate} expires in {days} days", renew)
    else:
        yield HostFinding(True, what, f"for {', '.join(details.names)}, valid for {days} days")
