"""The settings of the gRPC server, and which of them are not safe (SEC-001)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast.api.tls import tls_faults
from holdfast.core.base.errors import Refused

_Ms = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Rate = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_File = Annotated[str, msgspec.Meta(min_length=1)]


class LegacyEvidence(StrEnum):
    """Which senders of v0.1, which have no keys, may send evidence (EVD-009)."""

    OFF = "off"
    MTLS = "mtls"
    """Those whose certificate has the name of the channel's owner."""
    OPEN = "open"
    """All that can connect."""


class GrpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One listening address and its limits. Clients with and without certificates need two addresses."""

    host: str = "127.0.0.1"
    port: int = 8452
    """0 picks a free port."""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Where it is set, every client must present a certificate that this CA has signed."""
    allow_plain: bool = False
    """Listen without TLS on an address that other machines can reach: only behind a proxy that adds TLS."""
    message_bytes_max: int = 4 << 20
    streams_max: int = 1_024
    """Calls that one connection may have open."""
    calls_max: int = 20_000
    """Calls that all connections together may have open; most of them are idle streams."""
    connections_max: int = 10_000
    """Fewer where the limit of descriptors is low: at most half of what the node may open."""
    address_connections_max: int = 256
    """Connections of one address whose clients have not shown a key; many agents may share one."""
    key_connections_max: int = 64
    """Connections of one key; all providers without a stake have as many together."""
    front: bool = True
    """A process of its own accepts the connections: idle ones cost the node nothing, and limits by address hold."""
    address_calls_max: int = 5_000
    """Calls that one address may have open, streams included: IPv4 /32, IPv6 /64. Many agents may share one."""
    address_unproven_max: int = 64
    """Streams of one address that have not answered their challenge yet."""
    idle_ms: int = 60_000
    """A connection without a call is closed after this time."""
    address_per_s: int = 2_000
    """Calls a second from one address, after a burst of `address_burst`; many agents may share one."""
    address_burst: int = 10_000
    acts_per_s: int = 2_000
    """Acts a second of one provider on its work stream, after a burst of `acts_burst`; more are read later."""
    acts_burst: int = 8_192
    evidence_kib_per_s: int = 65_536
    """KiB of evidence a second of one provider with a stake, after a burst; over it, acks wait."""
    evidence_kib_burst: int = 262_144
    unstaked_kib_per_s: int = 64
    """The same without a stake; all of them together have 16 times as much. Dead letters have as much again."""
    unstaked_kib_burst: int = 1_024
    handshake_ms: int = 10_000
    """How long the handshake of a connection may take."""
    keepalive_ms: int = 30_000
    """After this much silence a ping is sent …"""
    keepalive_answer_ms: int = 10_000
    """… and the connection is closed where the ping is not answered within this time."""
    connection_age_ms: int | None = None
    """At this age a client is asked to reconnect, which spreads clients over nodes."""
    drain_ms: int = 5_000
    """How long running calls may continue when the server closes or a connection has reached its age."""
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
    "address_connections_max": _Count,
    "key_connections_max": _Count,
    "front": bool,
    "address_calls_max": _Count,
    "address_unproven_max": _Count,
    "idle_ms": _Ms,
    "address_per_s": _Rate,
    "address_burst": _Rate,
    "acts_per_s": _Rate,
    "acts_burst": Annotated[int, msgspec.Meta(ge=1_024, le=10_000_000)],
    "evidence_kib_per_s": _Rate,
    "evidence_kib_burst": _Rate,
    "unstaked_kib_per_s": _Rate,
    "unstaked_kib_burst": _Rate,
    "handshake_ms": _Ms,
    "keepalive_ms": _Ms,
    "keepalive_answer_ms": _Ms,
    "connection_age_ms": _Ms,
    "drain_ms": _Ms,
    "legacy_evidence": LegacyEvidence,
}
"""The type and bounds of each setting, by name."""


def why_not_open(settings: GrpcSettings) -> Refused | None:
    """SEC-001: tokens and results do not cross a network in plain text. EVD-009: mtls needs a client CA."""
    if (refusal := next(tls_faults(settings), None)) is not None:
        return refusal
    if settings.legacy_evidence is LegacyEvidence.MTLS and settings.client_ca is None:
        return Refused("EVD-009", "legacy_evidence: mtls without client_ca", "set the CA of the senders' certificates")
    return None


def address_of(settings: GrpcSettings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{settings.port}"


def options_of(settings: GrpcSettings) -> list[tuple[str, int]]:
    """The settings as options of the gRPC library."""
    options = {
        # A message that is a little too large gets a named refusal from us, a far larger one is cut off by gRPC.
        "grpc.max_receive_message_length": min(2 * settings.message_bytes_max, 2**31 - 1),
        "grpc.max_concurrent_streams": settings.streams_max,
        "grpc.max_allowed_incoming_connections": settings.connections_max,
        "grpc.server_handshake_timeout_ms": settings.handshake_ms,
        "grpc.max_connection_idle_ms": settings.idle_ms,
        "grpc.keepalive_time_ms": settings.keepalive_ms,
        "grpc.keepalive_timeout_ms": settings.keepalive_answer_ms,
        # The option above is not enough: without this one, gRPC waits a minute for the answer to a ping.
        "grpc.http2.ping_timeout_ms": settings.keepalive_answer_ms,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        # Clients on idle streams may ping as often as the server does, with some tolerance for their clocks.
        "grpc.http2.min_ping_interval_without_data_ms": settings.keepalive_ms // 2,
        # By default, gRPC would let a second node bind the same port and receive half of the calls.
        "grpc.so_reuseport": 0,
    }
    if settings.connection_age_ms is not None:
        options["grpc.max_connection_age_ms"] = settings.connection_age_ms
        options["grpc.max_connection_age_grace_ms"] = settings.drain_ms
    return list(options.items())
