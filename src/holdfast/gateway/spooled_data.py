"""An item's data on its way in: hashed as it arrives, in memory while it is small, on disk above that (ARC-004).

Memory stays bounded however large an upload is and however many there are. The file is private and has no use after a
crash: the client was not answered, and sends it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from holdfast.core.base.errors import Refused, Unavailable
from holdfast.gateway.records import CHUNK_BYTES
from holdfast.system.durable_files import FOLDER_MODE, TEMP_SUFFIX
from holdfast.wire.ans104 import HEADER_BYTES_MAX, DataHash, ItemHeader, header_length, parse_header

WRITE_BYTES: Final = 256 << 10
"""Data is handed to a thread in pieces of at least this size."""
INLINE_BYTES: Final = 16 << 10
"""Less than this is hashed without a thread."""


class SpooledData:
    """The data of one upload. `add` it, then `finish`; `discard` it in any case."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder, self._memory_bytes = folder, memory_bytes
        self._pending = bytearray()
        self._kept = bytearray()
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._chunk, self._chunk_room = hashlib.sha256(), CHUNK_BYTES
        self.hash = DataHash()
        self.chunks: list[bytes] = []

    async def add(self, data: bytes | memoryview) -> None:
        self._pending += data
        if len(self._pending) >= WRITE_BYTES:
            await self._flush()

    async def finish(self) -> None:
        await self._flush()
        if self._chunk_room < CHUNK_BYTES:
            self.chunks.append(self._chunk.digest())

    @property
    def size(self) -> int:
        return self.hash.length

    @property
    def source(self) -> bytes | Path:
        """Where the data is after `finish`: what an object store takes."""
        return bytes(self._kept) if self._path is None else self._path

    async def discard(self) -> None:
        if self._file is not None and self._path is not None:
            file, self._file = self._file, None
            await asyncio.to_thread(_remove, file, self._path)
        self._pending, self._kept = bytearray(), bytearray()

    async def _flush(self) -> None:
        piece, self._pending = bytes(self._pending), bytearray()
        if not piece:
            return
        if self._file is None and len(self._kept) + len(piece) <= self._memory_bytes:
            self._kept += piece
            await _run(len(piece) < INLINE_BYTES, self._take_hashes, piece)
            return
        try:
            await asyncio.to_thread(self._write, piece)
        except OSError as fault:
            raise Unavailable("ARC-004", f"cannot spool: {fault.strerror}", "check the gateway's disk") from fault

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._path = self._folder / f"{secrets.token_hex(16)}{TEMP_SUFFIX}"
            self._file = self._path.open("xb", buffering=0)
            self._path.chmod(0o600)
            _write_all(self._file, bytes(self._kept))
            self._kept = bytearray()
        _write_all(self._file, piece)
        self._take_hashes(piece)

    def _take_hashes(self, piece: bytes) -> None:
        self.hash.update(piece)
        rest = memoryview(piece)
        while rest:
            part, rest = rest[: self._chunk_room], rest[self._chunk_room :]
            self._chunk.update(part)
            self._chunk_room -= len(part)
            if not self._chunk_room:
                self.chunks.append(self._chunk.digest())
                self._chunk, self._chunk_room = hashlib.sha256(), CHUNK_BYTES


class SignedItemReader:
    """Divides a signed item into its header, kept in memory, and its data, spooled."""

    def __init__(self, data: SpooledData) -> None:
        self._data, self._start = data, bytearray()
        self.header: ItemHeader | None = None

    async def add(self, piece: bytes) -> Refused | None:
        """Refused as soon as the bytes cannot be an item any more."""
        if self.header is not None:
            await self._data.add(piece)
            return None
        self._start += piece
        length = header_length(bytes(self._start[: HEADER_BYTES_MAX + 1]))
        if isinstance(length, Refused):
            return length
        if length is None or len(self._start) < length:
            return None
        header = parse_header(bytes(self._start[:length]))
        if isinstance(header, Refused):
            return header
        self.header = header
        rest, self._start = bytes(self._start[length:]), bytearray()
        await self._data.add(rest)
        return None

    def finish(self) -> ItemHeader | Refused:
        if self.header is None:
            return Refused("ARC-004", f"{len(self._start)} bytes end inside the header", "", "InvalidItem")
        return self.header


async def _run(is_inline: bool, work: Callable[[bytes], None], piece: bytes) -> None:
    if is_inline:
        work(piece)
    else:
        await asyncio.to_thread(work, piece)


def _write_all(file: IO[bytes], raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def _remove(file: IO[bytes], path: Path) -> None:
    file.close()
    path.unlink(missing_ok=True)
