"""Large uploads in several requests: what has arrived is on disk before it is acknowledged (ARC-004).

    POST   /uploads               begin: an id, offset 0
    PATCH  /uploads/ID            more bytes, from the offset that the header upload-offset names
    HEAD   /uploads/ID            the offset to go on from
    POST   /uploads/ID/finish     store the item: the answer of /upload
    DELETE /uploads/ID            forget it

A client whose connection broke asks for the offset and goes on from there, also after the gateway was restarted.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.gateway.agent_tags import CustomTag
from holdfast.gateway.settings import GatewaySettings
from holdfast.ports import Clock
from holdfast.system.durable_files import FILE_MODE, FOLDER_MODE, replace_file, sync_data, sync_folder

READ_BYTES: Final = 1 << 20
_ID: Final = re.compile(r"[0-9a-f]{32}")
CONFLICT: Final = "Conflict"
NOT_FOUND: Final = "NotFound"
TOO_LARGE: Final = "TooLarge"
LIMITED: Final = "RateLimited"


class ResumableUpload(msgspec.Struct, frozen=True, kw_only=True):
    """What the first request has said."""

    id: str
    key_id: str
    created_ms: int
    signed: bool = False
    content_type: str | None = None
    tags: list[CustomTag] = []
    bucket: str = ""
    folder: str = ""
    name: str = ""
    provenance: bool = False


class ResumableUploads:
    """The unfinished uploads of a gateway, each a file of bytes and a file of facts."""

    def __init__(self, folder: Path, settings: GatewaySettings, clock: Clock) -> None:
        self._folder, self._settings, self._clock = folder, settings, clock
        self._in_use: set[str] = set()

    async def begin(self, upload: ResumableUpload) -> Refused | None:
        return await asyncio.to_thread(self._begin, upload)

    async def get(self, id_: str, key_id: str) -> ResumableUpload | Refused:
        """The upload, if it is this key's."""
        return await asyncio.to_thread(self._get, id_, key_id)

    async def offset(self, id_: str) -> int:
        return await asyncio.to_thread(lambda: self._part(id_).stat().st_size)

    async def append(self, id_: str, offset: int, pieces: AsyncIterator[bytes]) -> int | Refused:
        """Add bytes from this offset on; the new offset once they are durable. What arrived before a cut counts."""
        if id_ in self._in_use:
            return Refused("ARC-004", "another request is using this upload", name=CONFLICT)
        self._in_use.add(id_)
        try:
            return await self._append(id_, offset, pieces)
        except OSError as fault:
            raise Unavailable("ARC-004", f"cannot spool: {fault.strerror}", "check the gateway's disk") from fault
        finally:
            self._in_use.discard(id_)

    async def pieces(self, id_: str) -> AsyncIterator[bytes]:
        """All bytes, in order."""
        at = 0
        while piece := await asyncio.to_thread(_read_at, self._part(id_), at):
            at += len(piece)
            yield piece

    async def delete(self, id_: str) -> None:
        await asyncio.to_thread(self._delete, id_)

    async def expire(self) -> int:
        """Remove uploads that made no progress for too long; how many."""
        return await asyncio.to_thread(self._expire)

    def new_id(self) -> str:
        return secrets.token_hex(16)

    # ------------------------------------------------------------------------------------ in a thread

    def _begin(self, upload: ResumableUpload) -> Refused | None:
        self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        mine = sum(each.key_id == upload.key_id for each in self._all())
        if mine >= self._settings.uploads_open_max:
            return Refused("SEC-001", f"{mine} uploads are open, finish or delete one", name=LIMITED)
        os.close(os.open(self._part(upload.id), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        replace_file(self._facts(upload.id), msgspec.json.encode(upload))  # syncs the folder, and so both names
        return None

    def _all(self) -> list[ResumableUpload]:
        uploads = [self._load(path.stem) for path in self._folder.glob("*.json")]
        return [upload for upload in uploads if upload is not None]

    def _get(self, id_: str, key_id: str) -> ResumableUpload | Refused:
        upload = self._load(id_) if _ID.fullmatch(id_) else None
        if upload is None or upload.key_id != key_id:
            return Refused("ARC-004", "upload not found", name=NOT_FOUND)
        return upload

    def _load(self, id_: str) -> ResumableUpload | None:
        try:
            return msgspec.json.decode(self._facts(id_).read_bytes(), type=ResumableUpload)
        except (OSError, msgspec.DecodeError):
            return None

    async def _append(self, id_: str, offset: int, pieces: AsyncIterator[bytes]) -> int | Refused:
        file = await asyncio.to_thread(os.open, self._part(id_), os.O_WRONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            if size != offset:
                return Refused("ARC-004", f"upload-offset is {offset}, expected {size}", name=CONFLICT)
            try:
                async for piece in pieces:
                    if size + len(piece) > self._settings.object_bytes_max:
                        return Refused("SEC-001", _too_large(self._settings.object_bytes_max), name=TOO_LARGE)
                    await asyncio.to_thread(_write_at, file, piece, size)
                    size += len(piece)
            finally:
                await asyncio.to_thread(sync_data, file)
            return size
        finally:
            os.close(file)

    def _delete(self, id_: str) -> None:
        self._facts(id_).unlink(missing_ok=True)
        self._part(id_).unlink(missing_ok=True)
        if self._folder.exists():
            sync_folder(self._folder)

    def _expire(self) -> int:
        removed = 0
        if not self._folder.exists():
            return removed
        oldest_ns = (self._clock.wall_ms() - self._settings.upload_open_ms) * 1_000_000
        for path in list(self._folder.iterdir()):
            if path.stem not in self._in_use and path.suffix == ".part" and path.stat().st_mtime_ns < oldest_ns:
                self._delete(path.stem)
                removed += 1
        return removed

    def _part(self, id_: str) -> Path:
        return self._folder / f"{id_}.part"

    def _facts(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def _too_large(most: int) -> str:
    return f"file size exceeds limit - {most} bytes"


def _write_at(file: int, piece: bytes, at: int) -> None:
    rest = memoryview(piece)
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written


def _read_at(path: Path, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(READ_BYTES)
