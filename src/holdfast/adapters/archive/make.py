"""The provider of an archive from its settings."""

from __future__ import annotations

from pathlib import Path

from holdfast.adapters.archive.load_s3 import LoadS3Archive
from holdfast.adapters.archive.object_archive import ObjectArchive
from holdfast.adapters.archive.settings import ArchiveSettings, ProviderKind, UploadMode
from holdfast.adapters.keys.secret_file import read_secret
from holdfast.adapters.objects.local_folder import LocalObjects
from holdfast.ports.blobs import ArchiveProvider


def make_provider(settings: ArchiveSettings, data: Path) -> ArchiveProvider:
    """Unavailable where the archive cannot be reached or its key cannot be read."""
    if settings.provider is ProviderKind.LOAD_S3:
        assert settings.token_file is not None
        token = read_secret(settings.token_file).decode("utf-8").strip()
        timeout_s = settings.timeout_ms / 1_000
        return LoadS3Archive(
            settings.url,
            token,
            gateway_url=settings.gateway_url,
            timeout_s=timeout_s,
            bucket=settings.bucket,
            is_raw=settings.upload_mode is UploadMode.RAW,
        )
    if settings.provider is ProviderKind.S3:
        from holdfast.adapters.objects.remote_store import RemoteObjects  # noqa: PLC0415

        remote = RemoteObjects(settings.url, endpoint=settings.endpoint or None, timeout_s=settings.timeout_ms / 1_000)
        return ObjectArchive(remote, ProviderKind.S3.value, settings.url.rstrip("/"))
    folder = LocalObjects(Path(settings.url).expanduser() if settings.url else data / "archived")
    return ObjectArchive(folder, ProviderKind.FILE.value)
