"""Brings bytes back that the archive has lost after they were deleted here, while any node still has them (PRU-001).

Lost blobs come from a peer, the others of their height from the archive. All are checked, then durable, then recorded:
the archiver uploads what is suspect again. Where no node has the bytes any more an alarm says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from holdfast.core.archive.messages import RecallBlobs
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.engine.loop import Engine
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.ports.blobs import BlobFiles, Kzg, KzgWork, PackName
from holdfast.ports.sync import Peers

_log = structlog.get_logger()


class ItemSource(Protocol):
    """An archive that blobs are read from."""

    async def fetch(self, locator: str) -> bytes | None: ...


class BlobRepair:
    """For blobs that are not on this node any more."""

    def __init__(self, engine: Engine, files: BlobFiles, kzg: Kzg, archive: ItemSource, peers: Peers) -> None:
        self._engine, self._files, self._kzg, self._archive, self._peers = engine, files, kzg, archive, peers
        self.bytes_lost = 0
        """Blobs that no node and no archive has any more."""

    async def recall(self, lost: Blob, reason: str) -> bool:
        """Whether the bytes of the height are here again. The record is suspect in either case."""
        lives = await stored_blobs(self._engine, lost.height)
        raws = [await self._find(live.blob, is_lost=live.blob.number == lost.number) for live in lives]
        is_whole = None not in raws
        if is_whole:
            blobs = [live.blob for live in lives]
            await self._store([raw or b"" for raw in raws], blobs)
        outcome = await self._engine.submit(RecallBlobs(tuple(lives), (lost.number,), reason, is_whole))
        if isinstance(outcome, Refused):
            _log.warning("recall_refused", height=lost.height, reason=str(outcome))
            return False
        if raws[lost.number] is None:
            self.bytes_lost += lost.status is not BlobStatus.SUSPECT  # else it was lost before
            _log.error("bytes_lost", height=lost.height, index=lost.number, reason=reason)
        elif is_whole:
            _log.warning("blobs_recalled", height=lost.height, index=lost.number, reason=reason)
        return is_whole

    async def _store(self, raws: Sequence[bytes], blobs: Sequence[Blob]) -> None:
        for raw, blob in zip(raws, blobs, strict=True):
            await self._files.put(blob.versioned_hash, raw)
        pack = PackName(blobs[0].height, blobs[0].block_hash)
        await self._files.write_pack(pack, [(blob.versioned_hash, blob.keccak) for blob in blobs])

    async def _find(self, blob: Blob, *, is_lost: bool) -> bytes | None:
        if not is_lost:
            try:
                if await self._is_right(blob, raw := await self._archive.fetch(blob.locator)):
                    return raw
            except Unavailable as fault:
                _log.debug("archive_away", reason=str(fault))
        for peer in self._peers.names():
            try:
                raw = await self._peers.blob(peer, blob.height, blob.number)
            except Unavailable:
                continue
            if await self._is_right(blob, raw):
                return raw
        return None

    async def _is_right(self, blob: Blob, raw: bytes | None) -> bool:
        if raw is None or len(raw) != BLOB_BYTES:
            return False
        (is_same,) = await self._kzg.verify([(raw, KzgWork(blob.commitment, blob.proof, blob.keccak))])
        return is_same
