"""The bytes of a result out of its blobs, part by part and in order, checked at every step (RES-009, BLB-001)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from holdfast.core.base.errors import Corrupt
from holdfast.core.base.values import Digest, TaskId
from holdfast.core.blob.framing import HEADER_BYTES, FrameHeader, read_header, unpack_payload
from holdfast.core.blob.model import Blob
from holdfast.core.result import result_hasher
from holdfast.ports.blobs import Decryptor

AHEAD: Final = 4
"""Blobs that are on their way at a time."""


class FramePart(NamedTuple):
    """Some bytes of a result's frame: where they are in the payload of a blob."""

    offset: int
    length: int
    blob: Blob


class WantedResult(NamedTuple):
    """What must come out."""

    task_id: TaskId
    digest: Digest
    size: int


ReadBlob = Callable[[Blob], Awaitable[bytes]]
"""The bytes of a blob, verified against its commitment."""
OpenCipher = Callable[[FrameHeader], Decryptor]
"""How an encrypted frame is decrypted; Unavailable where we do not have its key."""


async def fetch_result(
    wanted: WantedResult, parts: Sequence[FramePart], read_blob: ReadBlob, open_cipher: OpenCipher
) -> AsyncIterator[bytes]:
    """The bytes in order. Raises Corrupt at the end where they are not the result's: then none of them may be used."""
    frame, hasher = _FrameReader(wanted, open_cipher), result_hasher(wanted.size)
    async for piece in _pieces(parts, read_blob):
        plain = await asyncio.to_thread(frame.feed, piece)
        hasher.update(plain)
        if plain:
            yield plain
    last = frame.finish()
    hasher.update(last)
    if last:
        yield last
    if hasher.digest() != wanted.digest:
        raise Corrupt("RES-004", f"the archive's bytes of {wanted.task_id.hex()} have another digest")


async def _pieces(parts: Sequence[FramePart], read_blob: ReadBlob) -> AsyncIterator[bytes]:
    """Some blobs ahead of the reader, never more: an output may be larger than memory."""
    left, reads = deque(parts), deque[tuple[FramePart, asyncio.Task[bytes]]]()
    try:
        while left or reads:
            while left and len(reads) < AHEAD:
                part = left.popleft()
                reads.append((part, asyncio.ensure_future(read_blob(part.blob))))
            part, read = reads.popleft()
            payload = await asyncio.to_thread(unpack_payload, await read)
            yield payload[part.offset : part.offset + part.length]
    finally:
        for _, read in reads:
            read.cancel()
        await asyncio.gather(*(read for _, read in reads), return_exceptions=True)


class _FrameReader:
    """Takes the frame apart: its header, which must be the wanted result's, and its body, decrypted."""

    def __init__(self, wanted: WantedResult, open_cipher: OpenCipher) -> None:
        self._wanted, self._open_cipher = wanted, open_cipher
        self._begin, self._read = bytearray(), 0
        self._header: FrameHeader | None = None
        self._cipher: Decryptor | None = None

    def feed(self, piece: bytes) -> bytes:
        if self._header is None:
            self._begin += piece
            if len(self._begin) < HEADER_BYTES:
                return b""
            self._header = self._check(read_header(bytes(self._begin)))
            self._cipher = self._open_cipher(self._header) if self._header.is_encrypted else None
            piece = bytes(self._begin[HEADER_BYTES:])
        self._read += len(piece)
        return piece if self._cipher is None else self._cipher.feed(piece)

    def finish(self) -> bytes:
        if self._header is None or self._read != self._header.length:
            raise Corrupt("BLB-001", f"the frame of {self._wanted.task_id.hex()} is cut")
        return b"" if self._cipher is None else self._cipher.finish()

    def _check(self, header: FrameHeader) -> FrameHeader:
        if (header.task_id, header.result_digest) != (self._wanted.task_id, self._wanted.digest):
            raise Corrupt("BLB-001", f"the blob has a frame of {header.task_id.hex()} where the record has another")
        return header
