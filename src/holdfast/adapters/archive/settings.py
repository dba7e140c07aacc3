"""The settings of a node's archive: which provider, where, and with which credentials (ARC-004, SEC-001)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast.adapters.kzg.trusted_setup import why_not_installed
from holdfast.core.base.errors import Refused


class ProviderKind(StrEnum):
    """What stores the items; none packs and archives nothing."""

    NONE = "none"
    FILE = "file"
    S3 = "s3"
    LOAD_S3 = "load-s3-agent"
    GATEWAY = "gateway"
    """A gateway that the node runs itself, as a child process; its settings are those of `gateway`."""


class UploadMode(StrEnum):
    """Who signs what load-s3-agent stores: we, so that an item's id is known beforehand, or the agent."""

    SIGNED = "signed"
    RAW = "raw"


class ArchiveSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The archive of one node."""

    provider: ProviderKind = ProviderKind.NONE
    url: str = ""
    """file: a folder, by default DATA/archived; s3: s3://bucket/folder; load-s3-agent: https://…"""
    endpoint: str = ""
    """The address of an S3-compatible server; credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY …"""
    gateway_url: str = ""
    """Where items are read back; by default where they are uploaded."""
    token_file: Path | None = None
    """The key of the agent, in a file that contains nothing else."""
    upload_mode: UploadMode = UploadMode.SIGNED
    bucket: str = ""
    """The agent's bucket for private uploads; without one, uploads are public."""
    timeout_ms: int = 30_000
    queue_max: int = 1_000
    """Heights that are lined up for their upload at a time; the others wait in the journal and are found again."""
    fetch_bytes_per_hour: int = 4 << 30
    """What readers of archived outputs may make the node fetch in an hour; 0 is no limit."""
    peers: str = ""
    """Followers that may still have what the archive lost: their addresses, separated by blanks."""
    peers_token_file: Path | None = None
    """The token of these followers, in a file that contains nothing else."""
    kzg_processes: int = 0
    """0 is one less than there are processors, at least 1."""

    @property
    def is_configured(self) -> bool:
        return self.provider is not ProviderKind.NONE


LEAVES: Final[Mapping[str, Any]] = {
    "provider": ProviderKind,
    "url": str,
    "endpoint": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+)?$")],
    "gateway_url": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+)?$")],
    "token_file": Annotated[str, msgspec.Meta(min_length=1)],
    "upload_mode": UploadMode,
    "bucket": Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9._-]{0,100}$")],
    "timeout_ms": Annotated[int, msgspec.Meta(ge=1, le=3_600_000)],
    "queue_max": Annotated[int, msgspec.Meta(ge=1, le=1_000_000)],
    "fetch_bytes_per_hour": Annotated[int, msgspec.Meta(ge=0, le=1 << 50)],
    "peers": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+( +https?://[^ ]+)*)?$")],
    "peers_token_file": Annotated[str, msgspec.Meta(min_length=1)],
    "kzg_processes": Annotated[int, msgspec.Meta(ge=0, le=1_024)],
}
PATHS: Final = ("token_file", "peers_token_file")


def faults(settings: ArchiveSettings) -> Iterator[Refused]:
    """Everything wrong with the settings together, each beginning with the name of the setting."""
    kind, url = settings.provider, settings.url
    if kind in (ProviderKind.NONE, ProviderKind.GATEWAY):
        return
    if kind is ProviderKind.S3 and not url.startswith(("s3://", "gs://", "az://")):
        yield Refused("SEC-001", f"url: {url!r:.60} is no bucket", "for example s3://bucket/folder")
    if kind is ProviderKind.LOAD_S3 and not url.startswith(("http://", "https://")):
        yield Refused("SEC-001", f"url: {url!r:.60} is no address", "for example https://agent.example:1247")
    if kind is ProviderKind.LOAD_S3 and settings.token_file is None:
        yield Refused("SEC-001", "token_file: not set", "name a file that holds nothing but the agent's key")
    if kind is ProviderKind.LOAD_S3 and settings.bucket and settings.upload_mode is UploadMode.RAW:
        message = "upload_mode: raw uploads to a private bucket are not found again after a lost answer"
        yield Refused("SEC-001", message, "private items are in no tag query: use signed uploads")
    if kind is ProviderKind.S3 and find_spec("obstore") is None:
        yield Refused("SEC-001", "provider: s3 needs obstore", "pip install 'holdfast[s3]'")
    if settings.peers and settings.peers_token_file is None:
        yield Refused("SEC-001", "peers_token_file: not set", "name a file that holds nothing but the followers' token")
    if (missing := why_not_installed()) is not None:
        yield Refused("SEC-001", f"provider: {missing.message}", missing.hint)
