"""Blobs that an archive has lost, made again from what this node still has (PRU-001).

Packing is deterministic, encryption included: the results that are in a blob give the same bytes again, and the same
signed item with the same id. So a record that was right becomes right again, without a change of history.
"""

from __future__ import annotations

import asyncio

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.blob.framing import make_frame, pack_payload
from holdfast.core.blob.model import Blob
from holdfast.core.result.model import Result
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.engine.queries.archive.blob_records import PlacedPart, find_parts
from holdfast.ports import Blobs
from holdfast.ports.blobs import ArchiveCipher, BlobFiles, PackName


class BlobRepacker:
    """Finds the bytes of a blob wherever this node has them."""

    def __init__(self, engine: Engine, warm: Blobs, files: BlobFiles, cipher: ArchiveCipher) -> None:
        self._engine, self._warm, self._files, self._cipher = engine, warm, files, cipher

    async def bytes_of(self, blob: Blob) -> bytes | None:
        """From its pack, or packed again from the outputs in it; None where this node has neither."""
        try:
            pack = PackName(blob.height, blob.block_hash)
            raw = await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
            return raw if raw is not None else await self._pack_again(blob)
        except (Corrupt, Unavailable):
            return None

    async def _pack_again(self, blob: Blob) -> bytes | None:
        placed = await find_parts(self._engine, "blob", [blob.event])
        payload = bytearray()
        for each in placed:
            piece = await self._piece(each)
            if piece is None:
                return None
            payload[len(payload) : each.part.offset] = bytes(each.part.offset - len(payload))
            payload += piece
        return await asyncio.to_thread(pack_payload, bytes(payload)) if placed else None

    async def _piece(self, placed: PlacedPart) -> bytes | None:
        """The bytes of one part: of the result's frame, what earlier blobs have not."""
        part = placed.part
        result = await queries.result(self._engine, part.task_id)
        raw = None if result is None else await self._output(result)
        if result is None or raw is None:
            return None
        whole = await find_parts(self._engine, "task_id", [part.task_id])
        start = sum(each.part.length for each in whole if each.part.place < part.place)
        frame = await asyncio.to_thread(self._frame, result, raw)
        return frame[start : start + part.length]

    async def _output(self, result: Result) -> bytes | None:
        raw = await queries.hot_output(self._engine, result)
        return raw if raw is not None else await self._warm.read(result.result_digest)

    def _frame(self, result: Result, raw: bytes) -> bytes:
        if result.is_public:
            return make_frame(result.task_id, result.result_digest, raw)
        body = self._cipher.encrypt(result.task_id, result.result_digest, raw)
        return make_frame(result.task_id, result.result_digest, body, self._cipher.id)
