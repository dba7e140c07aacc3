"""The settings of the store that several nodes share: outputs, blobs and journal segments (TIER-001, SEC-001)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.core.base.errors import Refused
from holdfast.ports.objects import Objects

REMOTE: Final = ("s3://", "gs://", "az://")


class SharedObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Where outputs, blobs and journal segments lie, so that every node finds them; by default in the data folder."""

    url: str = ""
    """s3://bucket/folder, or a folder that all nodes have mounted."""
    endpoint: str = ""
    """The address of an S3-compatible server; credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY …"""


LEAVES: Final[Mapping[str, Any]] = {
    "url": str,
    "endpoint": Annotated[str, msgspec.Meta(pattern="^(https?://[^ ]+)?$")],
}


def faults(settings: SharedObjects) -> Iterator[Refused]:
    """Everything wrong with the settings together, each beginning with the name of the setting."""
    url = settings.url
    if url and not url.startswith(REMOTE) and ("://" in url or not Path(url).is_absolute()):
        yield Refused("SEC-001", f"url: {url!r:.60} is no bucket and no folder", "s3://bucket/folder, or /mnt/shared")
    if settings.endpoint and not url.startswith("s3://"):
        yield Refused("SEC-001", "endpoint: set without a bucket", "name it: url = 's3://bucket/folder'")
    if url.startswith(REMOTE) and find_spec("obstore") is None:
        yield Refused("SEC-001", "url: a bucket needs obstore", "pip install 'holdfast[s3]'")


def make_objects(settings: SharedObjects) -> Objects | None:
    """None where every node has its own folder."""
    if not settings.url:
        return None
    if not settings.url.startswith(REMOTE):
        return LocalObjects(Path(settings.url))
    from holdfast.adapters.objects.remote_store import RemoteObjects  # noqa: PLC0415 - an extra

    return RemoteObjects(settings.url, endpoint=settings.endpoint or None)
