"""The settings of the gateway: where it listens, where items and index are stored, and its limits (SEC-001)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast.api.http.settings import HttpSettings
from holdfast.api.tls import tls_faults
from holdfast.core.base.errors import Refused

PORT: Final = 1_247
OBJECT_BYTES_MAX: Final = 250 << 20
"""The limit of load-s3-agent."""
_Ms = Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_Quota = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class IndexStore(StrEnum):
    """The database of the index."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0 takes a free one."""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    allow_plain: bool = False
    """Serve without TLS on an address that other machines can reach: only behind a proxy that adds it."""
    url: str = ""
    """Where clients reach it, for the texts that name an address; by default where it listens."""
    folder: Path | None = None
    """Keys, index, unfinished uploads and, by default, the items: by default DATA/gateway."""
    objects: str = ""
    """Where items are stored: s3://bucket/folder, gs://… or az://…; by default in the folder."""
    endpoint: str = ""
    """The address of an S3-compatible server; credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY …"""
    index: IndexStore = IndexStore.SQLITE
    """postgres uses the server of `postgres.dsn`."""
    public_metrics: bool = True
    """Let everybody read `/metrics`; else keys of administrators."""

    object_bytes_max: int = OBJECT_BYTES_MAX
    uploads_max: int = 128
    """Uploads that may run at once; more are told to come again."""
    uploads_open_max: int = 16
    """Resumable uploads that one key may have open."""
    upload_open_ms: int = 86_400_000
    """A resumable upload without progress is removed after this time."""
    memory_bytes: int = 256 << 10
    """An upload larger than this is spooled to disk."""
    body_ms: int = 3_600_000
    """How long a whole upload may take …"""
    stall_ms: int = 30_000
    """… and how long it may bring nothing."""
    connections_max: int = 1_024
    key_per_s: int = 200
    """Requests a second with one key, after a burst of `key_burst`."""
    key_burst: int = 400
    address_per_s: int = 200
    """The same for requests without a key, by address."""
    address_burst: int = 400
    quota_bytes: int = 0
    """What one key may store, unless it was created with a quota of its own; 0 is no limit."""
    quota_items: int = 0
    query_ms: int = 5_000
    """A query that takes longer is refused."""
    scrub_hours: int = 168
    """How long one pass over all items takes; 0 turns it off."""
    drain_ms: int = 10_000
    """How long running requests may take when the gateway stops."""


LEAVES: Final[Mapping[str, Any]] = {
    "host": _Text,
    "port": Annotated[int, msgspec.Meta(ge=0, le=65_535)],
    "certificate": _Text,
    "key": _Text,
    "client_ca": _Text,
    "allow_plain": bool,
    "url": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+)?$")],
    "folder": _Text,
    "objects": Annotated[str, msgspec.Meta(pattern="^((s3|gs|az)://[^ ]+)?$")],
    "endpoint": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+)?$")],
    "index": IndexStore,
    "public_metrics": bool,
    "object_bytes_max": Annotated[int, msgspec.Meta(ge=1_024, le=1 << 40)],
    "uploads_max": _Count,
    "uploads_open_max": _Count,
    "upload_open_ms": _Ms,
    "memory_bytes": Annotated[int, msgspec.Meta(ge=0, le=64 << 20)],
    "body_ms": _Ms,
    "stall_ms": _Ms,
    "connections_max": _Count,
    "key_per_s": _Count,
    "key_burst": _Count,
    "address_per_s": _Count,
    "address_burst": _Count,
    "quota_bytes": _Quota,
    "quota_items": _Quota,
    "query_ms": _Ms,
    "scrub_hours": Annotated[int, msgspec.Meta(ge=0, le=8_760)],
    "drain_ms": _Ms,
}
"""The type and the bounds of every setting."""
PATHS: Final = ("certificate", "key", "client_ca", "folder")


def faults(settings: GatewaySettings) -> Iterator[Refused]:
    """Everything wrong with the settings together, each beginning with the name of the setting."""
    yield from tls_faults(settings)
    if settings.endpoint and not settings.objects.startswith("s3://"):
        yield Refused("SEC-001", "endpoint: set without objects", "name the bucket: objects = 's3://bucket/folder'")


def why_not_libraries(settings: GatewaySettings) -> Refused | None:
    """What must be installed for these settings and is not."""
    for module, is_needed, extra in (
        ("python_multipart", True, "gateway"),
        ("obstore", bool(settings.objects), "s3"),
        ("asyncpg", settings.index is IndexStore.POSTGRES, "postgres"),
    ):
        if is_needed and find_spec(module) is None:
            return Refused("SEC-001", f"{module} is not installed", f"pip install 'holdfast[{extra}]'", "BadConfig")
    return None


def http_settings(settings: GatewaySettings) -> HttpSettings:
    """The same limits in the words of the HTTP server."""
    return HttpSettings(
        host=settings.host,
        port=settings.port,
        certificate=settings.certificate,
        key=settings.key,
        client_ca=settings.client_ca,
        allow_plain=settings.allow_plain,
        connections_max=settings.connections_max,
        address_connections_max=settings.connections_max,  # a node uploads over many connections of one address
        body_ms=settings.body_ms,
        drain_ms=settings.drain_ms,
        send_bytes_max=1 << 20,
        slow_ms=settings.stall_ms,
    )
