"""Objects in a remote store, S3-compatible or another that obstore knows (ARC-004).

Small objects are written with a conditional PUT, so that one writer succeeds. Larger ones are looked for and then
written in parts, which no store makes conditional. Credentials come from the environment (AWS_ACCESS_KEY_ID …).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
import obstore.store
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from holdfast.adapters.objects.keys import check_key
from holdfast.core.base.errors import AccessDenied, Unavailable
from holdfast.ports.objects import StoredObject

CONDITIONAL_MAX: Final = 8 << 20
PART_BYTES: Final = 8 << 20
PARTS_AT_ONCE: Final = 4
LARGE_AT_ONCE: Final = 4
"""Parts are held in memory: 4 objects × 4 parts × 8 MiB."""
LIST_PAGE: Final = 1_000
SCHEMES: Final = ("s3", "gs", "az")
"""obstore knows folders, too, but syncs nothing there: they are stored by `local_folder`."""
TIMEOUT_S: Final = 30
RETRIES: Final = 3
_SECRETS: Final = re.compile(r"(?i)(credential|signature|secret|token)[^ ]*[=:][^ ,;]+")


class RemoteObjects:
    """One bucket, or a folder of it."""

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        config: Mapping[str, str] | None = None,
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`url` is s3://bucket/folder, gs://… or az://…; an endpoint is that of an S3-compatible server."""
        if urlsplit(url).scheme not in SCHEMES:
            raise Unavailable("ARC-004", f"{url!r:.60} is no remote store", f"use one of {', '.join(SCHEMES)}")
        options: Any = {"timeout": f"{timeout_s}s", "connect_timeout": f"{min(timeout_s, 10.0)}s"}
        settings: Any = dict(config or {})
        if endpoint is not None:
            settings |= {"endpoint": endpoint, "virtual_hosted_style_request": "false"}
            options["allow_http"] = endpoint.startswith("http://")
            settings.setdefault("region", "us-east-1")
        if urlsplit(url).scheme == "s3":
            settings.setdefault("checksum_algorithm", "SHA256")  # the store refuses bytes that changed on their way
        retry: Any = {"max_retries": retries, "retry_timeout": timedelta(seconds=2 * timeout_s)}
        with _translate_errors():
            self._store = obstore.store.from_url(url, client_options=options, retry_config=retry, config=settings)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def put_once(self, key: str, source: bytes | Path) -> bool:
        check_key(key)
        if await _size_of(source) > CONDITIONAL_MAX:
            if await self.size(key) is not None:
                return False
            await self._put_parts(key, source)
            return True
        with _translate_errors():
            try:
                await obstore.put_async(self._store, key, source, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    async def replace(self, key: str, source: bytes | Path) -> None:
        check_key(key)
        if await _size_of(source) > CONDITIONAL_MAX:
            await self._put_parts(key, source)
            return
        with _translate_errors():
            await obstore.put_async(self._store, key, source, use_multipart=False)

    async def size(self, key: str) -> int | None:
        with _translate_errors():
            try:
                meta = await obstore.head_async(self._store, check_key(key))
            except (NotFoundError, FileNotFoundError):
                return None
        return meta["size"]

    async def read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        check_key(key)
        if length == 0:
            return None if await self.size(key) is None else b""
        with _translate_errors():
            try:
                if start == 0 and length is None:
                    return bytes(await (await obstore.get_async(self._store, key)).bytes_async())
                span: Any = {"offset": start} if length is None else (start, start + length)
                answer = await obstore.get_async(self._store, key, options={"range": span})
                return bytes(await answer.bytes_async())
            except (NotFoundError, FileNotFoundError):
                return None

    async def list(self, folder: str, after: str = "") -> AsyncIterator[StoredObject]:
        check_key(folder)
        with _translate_errors():
            # A store may take the offset as a hint: what is not above it is left out here.
            stream = obstore.list(self._store, folder, offset=after or None, chunk_size=LIST_PAGE)
            async for page in stream:
                for meta in page:
                    if meta["path"] > after:
                        yield StoredObject(meta["path"], meta["size"])

    async def delete(self, key: str) -> None:
        with _translate_errors():
            try:
                await obstore.delete_async(self._store, check_key(key))
            except (NotFoundError, FileNotFoundError):
                return

    async def close(self) -> None:
        """obstore closes its connections when the store is collected."""

    async def _put_parts(self, key: str, source: bytes | Path) -> None:
        async with self._large:
            with _translate_errors():
                await obstore.put_async(
                    self._store,
                    key,
                    source,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )


async def _size_of(source: bytes | Path) -> int:
    if isinstance(source, bytes):
        return len(source)
    return (await asyncio.to_thread(source.stat)).st_size


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as fault:
        raise AccessDenied("ARC-004", f"object store: {_message_of(fault)}", _HINT) from None
    except (BaseError, OSError) as fault:
        raise Unavailable("ARC-004", f"object store: {_message_of(fault)}", _HINT) from None


def _message_of(fault: Exception) -> str:
    """The first line, without what could be a credential (SEC-001)."""
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return _SECRETS.sub(r"\1=…", lines[0] if lines else type(fault).__name__)[:300]


_HINT: Final = "check the store's address, that the bucket exists, and the credentials in the environment"
