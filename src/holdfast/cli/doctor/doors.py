"""The doors to the network: whether their ports are free or ours, and how long their certificates last (SEC-001)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.keys.certificate import TlsFiles, describe_file, why_not_valid
from holdfast.cli.doctor.finding import Finding
from holdfast.client import SOCKET
from holdfast.config import Config
from holdfast.core.refusal import Unavailable
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.doors.http.settings import HttpSettings

DAY_MS: Final = 86_400_000
RENEW_DAYS: Final = 30
_PEER: Final = struct.Struct("3i")
"""What the kernel says of whoever is at the other end of a Unix socket: pid, uid, gid."""


def doors(config: Config, is_up: bool) -> Iterator[Finding]:
    """Every door that is to be open; the others are named as shut."""
    for name, settings in (("http", config.http), ("grpc", config.grpc)):
        if settings is None:
            yield Finding(True, name, "shut", f"{name}.enabled = true opens it")
            continue
        yield _port(name, settings, _owner(config.data) if is_up else None, is_up)
        if settings.certificate is not None and settings.key is not None:
            yield from _certificate(name, settings.certificate, settings.key, settings.client_ca)


# ------------------------------------------------------------------------------------------------ ports


def _port(name: str, settings: HttpSettings | GrpcSettings, owner: int | None, is_up: bool) -> Finding:
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        return Finding(True, name, "takes a port that is free", "set one that clients can know")
    try:
        is_free = _is_free(settings.host, settings.port)
    except OSError as fault:
        return Finding(
            False, name, f"{where}: {fault.strerror or fault}", f"set {name}.host to an address of this machine"
        )
    if is_free and is_up:
        return Finding(False, name, f"{where}: the node is up, and nobody listens", "restart it with these settings")
    if is_free:
        return Finding(True, name, f"{where} is free")
    if owner is not None and _listens(owner, settings.port) is not False:
        return Finding(True, name, f"{where} is open, by this node")
    return Finding(False, name, f"{where} is taken by another program", f"stop that, or set {name}.port")


def _is_free(host: str, port: int) -> bool:
    """Whether the node could listen there."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, number) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno not in _TAKEN:
                raise
            return False
    return True


_TAKEN: Final = frozenset({98, 48})
"""EADDRINUSE, here and on other systems."""


def _owner(data: Path) -> int | None:
    """The process behind the node's socket."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
        peer.settimeout(1.0)
        peer.connect(str(data / SOCKET))
        pid, _, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        return int(pid)
    return None


def _listens(pid: int, port: int) -> bool | None:
    """Whether this process listens on the port; None where the system does not say."""
    inodes: set[str] = set()
    try:
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
        return any(_leads_to(file, inodes) for file in Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError, IndexError):
        return None


def _leads_to(file: Path, names: set[str]) -> bool:
    with suppress(OSError):
        return str(file.readlink()) in names
    return False


# ------------------------------------------------------------------------------------------------ certificates


def _certificate(name: str, certificate: Path, key: Path, client_ca: Path | None) -> Iterator[Finding]:
    what, now_ms = f"{name} TLS", time.time_ns() // 1_000_000
    try:
        TlsFiles(certificate, key, client_ca).load()
        found = describe_file(certificate)
    except Unavailable as fault:
        yield Finding(False, what, fault.says, fault.hint)
        return
    days = (found.until_ms - now_ms) // DAY_MS
    renew = f"move {certificate.name} and {key.name} away, holdfast tls server makes new ones"
    if no := why_not_valid(found, now_ms):
        yield Finding(False, what, no.says, renew)
    elif days < RENEW_DAYS:
        yield Finding(False, what, f"{certificate} expires in {days} days", renew)
    else:
        yield Finding(True, what, f"for {', '.join(found.names)}, good for {days} days")
