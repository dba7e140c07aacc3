"""What an operator decides about the gRPC door, and what of it is not safe (SEC-001)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast.core.refusal import Refused
from holdfast.doors.loopback import is_loopback

_Ms = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Rate = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_File = Annotated[str, msgspec.Meta(min_length=1)]


class LegacyEvidence(StrEnum):
    """Who may send evidence as v0.1 speaks it, which knows no keys (EVD-009)."""

    OFF = "off"
    MTLS = "mtls"
    """Whose certificate bears the name of the channel's owner."""
    OPEN = "open"
    """Everybody who can connect."""


class GrpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One listening address. Where some clients show certificates and others only tokens, two doors are opened."""

    host: str = "127.0.0.1"
    port: int = 8452
    """0 takes one that is free."""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Where it is given, whoever connects must show a certificate that it has signed."""
    allow_plain: bool = False
    """Speak without TLS on an address that others can reach: only behind something that adds it."""
    message_bytes_max: int = 4 << 20
    streams_max: int = 1_024
    """Calls that one connection may have open."""
    calls_max: int = 20_000
    """Calls that all connections together may have open; most of them are idle streams."""
    connections_max: int = 10_000
    address_per_s: int = 2_000
    """Calls a second from one address, after a burst of `address_burst`; many agents may share one."""
    address_burst: int = 10_000
    acts_per_s: int = 2_000
    """Acts a second of one provider on its stream of work, after a burst of `acts_burst`: more are heard later."""
    acts_burst: int = 8_192
    handshake_ms: int = 10_000
    """How long a connection may take to become one."""
    keepalive_ms: int = 30_000
    """After this much silence the other side is asked whether it is still there …"""
    keepalive_answer_ms: int = 10_000
    """… and let go of where it does not answer within this."""
    connection_age_ms: int | None = None
    """After this age a client is asked to connect anew, which spreads clients over nodes."""
    drain_ms: int = 5_000
    """How long calls that run may go on when the door closes or a connection has reached its age."""
    legacy_evidence: LegacyEvidence = LegacyEvidence.OFF


LEAVES: Final[Mapping[str, Any]] = {
    "host": Annotated[str, msgspec.Meta(min_length=1)],
    "port": Annotated[int, msgspec.Meta(ge=0, le=65_535)],
    "certificate": _File,
    "key": _File,
    "client_ca": _File,
    "allow_plain": bool,
    "message_bytes_max": Annotated[int, msgspec.Meta(ge=1_024, le=2**31 - 1)],
    "streams_max": _Count,
    "calls_max": _Count,
    "connections_max": _Count,
    "address_per_s": _Rate,
    "address_burst": _Rate,
    "acts_per_s": _Rate,
    "acts_burst": Annotated[int, msgspec.Meta(ge=1_024, le=10_000_000)],
    "handshake_ms": _Ms,
    "keepalive_ms": _Ms,
    "keepalive_answer_ms": _Ms,
    "connection_age_ms": _Ms,
    "drain_ms": _Ms,
    "legacy_evidence": LegacyEvidence,
}
"""What can be set, by name."""


def why_not_open(settings: GrpcSettings) -> Refused | None:
    """SEC-001: tokens and results do not cross a network in plain text, and half a TLS setting is none."""
    if (settings.certificate is None) != (settings.key is None):
        missing = "key" if settings.key is None else "certificate"
        return Refused("SEC-001", f"{missing}: missing", "a certificate and its key are set together")
    if settings.legacy_evidence is LegacyEvidence.MTLS and settings.client_ca is None:
        return Refused("EVD-009", "legacy_evidence: mtls without client_ca", "name who signs the senders' certificates")
    if settings.certificate is not None or is_loopback(settings.host):
        if settings.client_ca is not None and settings.certificate is None:
            return Refused("SEC-001", "client_ca: set without a certificate", "client certificates need TLS")
        return None
    if settings.allow_plain and settings.client_ca is None:
        return None
    return Refused(
        "SEC-001",
        f"host: {settings.host} is reached from elsewhere and there is no TLS",
        "set certificate and key, or listen on 127.0.0.1; allow_plain = true is for a proxy that adds TLS",
    )


def address_of(settings: GrpcSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"


def options_of(settings: GrpcSettings) -> list[tuple[str, int]]:
    """The same in gRPC's own words."""
    options = {
        # A message that is a little too large gets a named answer from us, a far larger one is cut off by gRPC.
        "grpc.max_receive_message_length": min(2 * settings.message_bytes_max, 2**31 - 1),
        "grpc.max_concurrent_streams": settings.streams_max,
        "grpc.max_allowed_incoming_connections": settings.connections_max,
        "grpc.server_handshake_timeout_ms": settings.handshake_ms,
        "grpc.keepalive_time_ms": settings.keepalive_ms,
        "grpc.keepalive_timeout_ms": settings.keepalive_answer_ms,
        # The one above is not enough: gRPC waits a minute for the answer to a ping unless this says otherwise.
        "grpc.http2.ping_timeout_ms": settings.keepalive_answer_ms,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        # Clients on idle streams may look after us as often as we look after them, with some room for their clocks.
        "grpc.http2.min_ping_interval_without_data_ms": settings.keepalive_ms // 2,
        # gRPC's default would let a second node bind the same port and take half of the calls.
        "grpc.so_reuseport": 0,
    }
    if settings.connection_age_ms is not None:
        options["grpc.max_connection_age_ms"] = settings.connection_age_ms
        options["grpc.max_connection_age_grace_ms"] = settings.drain_ms
    return list(options.items())
