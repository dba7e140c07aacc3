"""The settings of the HTTP server, and which of them are not safe (SEC-001)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.api.limits.addresses import parse_networks
from holdfast.api.rpc.limits import BATCH_MAX, DEPTH_MAX, VALUES_MAX
from holdfast.api.tls import tls_faults
from holdfast.core.base.errors import Refused

_Count = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_Ms = Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]
_Bytes = Annotated[int, msgspec.Meta(ge=1_024, le=1 << 30)]
_File = Annotated[str, msgspec.Meta(min_length=1)]


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One listening address and its limits."""

    host: str = "127.0.0.1"
    port: int = 8451
    """0 takes a free one."""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """Where it is set, clients must show a certificate that it has signed."""
    allow_plain: bool = False
    """Serve without TLS on an address that other machines can reach: only behind a proxy that adds it."""
    origins: str = ""
    """Web pages of these origins, separated by blanks, may open a WebSocket; pages of the node's own always may."""
    cors_origins: str = ""
    """Web pages of these origins, separated by blanks, may call with a token of their own; never with a cookie."""

    public_reads: bool = True
    """Let everybody call methods that need no role; else only `rpc.discover`, `node.getStatus`, `auth.setToken`."""
    public_events: bool = False
    """Let everybody subscribe to all events that are not internal; else operators and auditors to all events, and
    requesters to those of their account."""
    public_metrics: bool = True
    """Let everybody read `/metrics`; else operators and auditors."""

    body_bytes_max: int = 4 << 20
    anonymous_bytes_max: int = 64 << 10
    """The same for requests without a key: public methods need no long parameters."""
    depth_max: int = 64
    """How deep objects and arrays of a message may be nested."""
    batch_max: int = 100
    """Requests in one batch."""
    values_max: int = 4_096
    """Values and keys in one message: reading many takes long, and others wait meanwhile."""
    in_flight_max: int = 64
    """Messages of one WebSocket that may wait for their answers; the next one is read after an answer."""
    connections_max: int = 4_096
    """A quarter of them is reserved for clients with a key."""
    address_connections_max: int = 64
    """Connections without a key of one IPv4 address, or of one IPv6 /64. As many as `connections_max`: no reserve."""
    key_connections_max: int = 1_024
    """Connections of one key."""
    trusted_proxies: str = ""
    """Addresses and networks, separated by blanks, whose `X-Forwarded-For` is believed."""
    key_per_s: int = 1_000
    """Requests a second with one key, after a burst of `key_burst`."""
    key_burst: int = 2_000
    address_per_s: int = 100
    """The same for requests without a valid key, by address."""
    address_burst: int = 200

    subscribers_max: int = 2_048
    subscriptions_max: int = 16
    """Subscriptions of one WebSocket."""
    send_bytes_max: int = 256 << 10
    """What may wait to be read by one client; until it has read some, it gets no more …"""
    slow_ms: int = 10_000
    """… and a client that reads nothing for this long is disconnected."""
    heartbeat_ms: int = 15_000
    ping_ms: int = 20_000

    head_bytes_max: int = 16 << 10
    head_ms: int = 10_000
    """How long a request line and its headers may take to arrive, or a TLS handshake."""
    body_ms: int = 30_000
    idle_ms: int = 60_000
    """How long a connection may wait for its next request."""
    ready_ms: int = 2_000
    """A node whose own query takes longer than this is not ready."""
    drain_ms: int = 5_000
    """How long running requests may take when the server closes."""


LEAVES: Final[Mapping[str, Any]] = {
    "host": Annotated[str, msgspec.Meta(min_length=1)],
    "port": Annotated[int, msgspec.Meta(ge=0, le=65_535)],
    "certificate": _File,
    "key": _File,
    "client_ca": _File,
    "allow_plain": bool,
    "origins": str,
    "cors_origins": str,
    "public_reads": bool,
    "public_events": bool,
    "public_metrics": bool,
    "body_bytes_max": _Bytes,
    "anonymous_bytes_max": _Bytes,
    "depth_max": Annotated[int, msgspec.Meta(ge=4, le=DEPTH_MAX)],
    "batch_max": Annotated[int, msgspec.Meta(ge=1, le=BATCH_MAX)],
    "values_max": Annotated[int, msgspec.Meta(ge=64, le=VALUES_MAX)],
    "in_flight_max": _Count,
    "connections_max": _Count,
    "address_connections_max": _Count,
    "key_connections_max": _Count,
    "trusted_proxies": str,
    "key_per_s": _Count,
    "key_burst": _Count,
    "address_per_s": _Count,
    "address_burst": _Count,
    "subscribers_max": _Count,
    "subscriptions_max": _Count,
    "send_bytes_max": _Bytes,
    "slow_ms": _Ms,
    "heartbeat_ms": _Ms,
    "ping_ms": _Ms,
    "head_bytes_max": _Bytes,
    "head_ms": _Ms,
    "body_ms": _Ms,
    "idle_ms": _Ms,
    "ready_ms": _Ms,
    "drain_ms": _Ms,
}
"""The type and the bounds of every setting."""


TOLD_LIMITS: Final = (
    "body_bytes_max",
    "anonymous_bytes_max",
    "depth_max",
    "batch_max",
    "values_max",
    "key_per_s",
    "key_burst",
    "address_per_s",
    "address_burst",
    "in_flight_max",
    "subscriptions_max",
)


def limits_of(settings: HttpSettings) -> dict[str, int]:
    """What `rpc.discover` tells clients: the limits that this server holds them to."""
    return {name: getattr(settings, name) for name in TOLD_LIMITS}


def faults(settings: HttpSettings) -> list[Refused]:
    """Everything wrong with the settings, each beginning with the name of the setting (SEC-001)."""
    return [*_out_of_bounds(settings), *_inconsistent(settings), *tls_faults(settings)]


def _out_of_bounds(settings: HttpSettings) -> Iterator[Refused]:
    for name, kind in LEAVES.items():
        value = getattr(settings, name)
        if value is None:
            continue
        try:
            msgspec.convert(str(value) if isinstance(value, Path) else value, kind)
        except msgspec.ValidationError as fault:
            yield Refused("SEC-001", f"{name}: {value!r:.40}: {fault}", "write an address or a network: 192.0.2.0/24")


def _inconsistent(settings: HttpSettings) -> Iterator[Refused]:
    try:
        parse_networks(settings.trusted_proxies)
    except ValueError as fault:
        yield Refused("SEC-001", f"trusted_proxies: {fault}", "name addresses or networks, separated by blanks")
    for why_not in filter(None, map(_why_not_origin, settings.cors_origins.split())):
        hint = "write https://console.example, separated by blanks; `*` is not possible"
        yield Refused("SEC-001", f"cors_origins: {why_not}", hint)
    for name in ("key_burst", "address_burst"):
        if (burst := getattr(settings, name)) < settings.batch_max:
            message = f"{name}: {burst} is less than batch_max, {settings.batch_max}"
            yield Refused("SEC-001", message, "a batch of that size would never be accepted")


def _why_not_origin(origin: str) -> str | None:
    """What is wrong with a configured origin."""
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}":
        return f"{origin!r:.80} is not an origin"
    return None
