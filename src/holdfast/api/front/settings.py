"""What the front process is told when it starts, what it is told later, and what it reports."""

from __future__ import annotations

from pathlib import Path

import msgspec


class FrontSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of connections, and where they are forwarded to."""

    upstream: Path
    """The Unix socket of the node's gRPC server."""
    is_tls: bool
    """Connections begin with a TLS handshake, which passes through untouched."""
    connections_max: int
    address_connections_max: int
    key_connections_max: int
    opening_ms: int
    """How long a client may take to send its first bytes."""


class ConnectionProven(msgspec.Struct, frozen=True, tag="proven"):
    """To the front process: a client has shown who it is."""

    number: int
    key: str


class StopListening(msgspec.Struct, frozen=True, tag="stop"):
    """To the front process: accept no more connections, and forward those there are."""


class FrontCounts(msgspec.Struct, frozen=True, tag="counts"):
    """From the front process: its connections now, and what it has refused so far."""

    silent: int = 0
    """Connections that have sent nothing complete yet: the node does not know them."""
    forwarded: int = 0
    proven: int = 0
    full: int = 0
    """Refused, since all places were taken."""
    displaced: int = 0
    late: int = 0
    foreign: int = 0
    """Closed, since they speak neither HTTP/2 nor TLS."""
    upstream_failed: int = 0


FrontMessage = ConnectionProven | StopListening
