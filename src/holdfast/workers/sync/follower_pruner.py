"""What a follower does with heights whose bytes it has: finds lost records, reads back, and deletes (NTC-004, PRU-001).

The flag is durable before the bytes go. A record counts when its bytes were read back from the archive, unless policy
says less; a hit of a query alone never deletes anything, unless `trust_receipts` says so.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from holdfast.core.archive.decide import must_read_back
from holdfast.core.archive.messages import SIGNED, VERIFIED
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import BlobStatus
from holdfast.core.policy import ArchivePolicy
from holdfast.core.sync.followed import BytesStatus, FollowedBlob, why_not_prune_followed
from holdfast.ports.blobs import ArchiveReader, BlobFiles, Kzg, KzgWork, PackName
from holdfast.workers.sync.follower_chain import FollowerChain
from holdfast.workers.sync.sync_metrics import SyncMetrics

INTERVAL_MS: Final = 1_000
HEIGHTS_MAX: Final = 256
"""Heights looked at in one run."""
FIND_EVERY: Final = 30
"""The archive is asked for items of which no notice came in the first pass, and then in every thirtieth."""
RecordChange = dict[str, Any]
"""Fields of a record that become others; none where nothing changes."""
_log = structlog.get_logger()


class FollowerPruner:
    """One run: the next heights that have bytes here. Without an archive to ask it reads nothing back."""

    starts_at_once = True
    interval_ms = INTERVAL_MS

    def __init__(
        self,
        chain: FollowerChain,
        files: BlobFiles,
        kzg: Kzg,
        archive: ArchiveReader | None,
        policy: ArchivePolicy,
        metrics: SyncMetrics,
        find_every: int = FIND_EVERY,
    ) -> None:
        self._chain, self._files, self._kzg, self._archive = chain, files, kzg, archive
        self._policy, self._metrics = policy, metrics
        self._find_every, self._runs = find_every, 0
        self._after = Height(0)
        self._is_resumed = False

    async def run_once(self) -> None:
        if not self._is_resumed:
            await self._resume()
        heights = await self._chain.store.heights_here(self._after, HEIGHTS_MAX)
        self._runs += not self._after  # a pass over all heights may take several runs
        for height in heights:
            await self._look_at(height)
        self._after = heights[-1] if len(heights) == HEIGHTS_MAX else Height(0)

    async def _look_at(self, height: Height) -> None:
        blobs = [await self._checked(blob) for blob in await self._chain.store.blobs(height)]
        head = (await self._chain.get()).head.header.height
        if head - height < self._policy.retain_blocks or why_not_prune_followed(self._policy, blobs) is not None:
            return
        pack = PackName(height, blobs[0].block_hash)
        if not await self._are_ours(pack, blobs):
            return
        pruned = await self._chain.change(blobs, bytes_status=BytesStatus.PRUNED)
        if not all(blob.bytes_status is BytesStatus.PRUNED for blob in pruned):
            return  # a record became another one: it is looked at again
        await self._files.delete_pack(pack)
        self._metrics.pruned += len(blobs)
        _log.info("blobs_pruned", height=height, blobs=len(blobs))

    async def _are_ours(self, pack: PackName, blobs: list[FollowedBlob]) -> bool:
        """NTC-002: hashed once more, from the disk."""
        try:
            for blob in blobs:
                await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        except Corrupt as fault:
            self._metrics.prune_failures += 1
            _log.error("prune_failed", height=pack.height, reason=str(fault))
            return False
        return True

    async def _resume(self) -> None:
        """Packs that a killed follower was about to delete."""
        for pack in await self._files.packs():
            blobs = await self._chain.store.blobs(pack.height)
            if blobs and all(blob.bytes_status is BytesStatus.PRUNED for blob in blobs):
                await self._files.delete_pack(pack)
        self._is_resumed = True

    # ------------------------------------------------------------------------------------ records

    async def _checked(self, blob: FollowedBlob) -> FollowedBlob:
        """The record after the archive was asked about it; the archive may be away."""
        if self._archive is None:
            return blob
        try:
            await self._archive.open()
            if blob.status is not BlobStatus.ARCHIVED:
                is_due = self._runs % self._find_every == 1 % self._find_every
                changes = await self._find(blob) if is_due else {}
            elif blob.assurance != VERIFIED and must_read_back(self._policy, blob.versioned_hash):
                changes = await self._read_back(blob)
            else:
                return blob
        except Unavailable as fault:
            _log.debug("archive_away", height=blob.height, reason=str(fault))
            return blob
        return (await self._chain.change([blob], **changes))[0] if changes else blob

    async def _read_back(self, blob: FollowedBlob) -> RecordChange:
        """ARC-004: what the archive has is what the block commits to, else the record is suspect."""
        reasons = list[str]()
        for locator in (blob.locator, *blob.alternates.splitlines()):
            reason = await self._why_not_held(blob, locator)
            if reason is None:
                return {"assurance": VERIFIED}
            reasons.append(reason)
        self._metrics.suspect += 1
        _log.warning("archive_lost", height=blob.height, index=blob.number, reason=reasons[0])
        return {"status": BlobStatus.SUSPECT, "reason": reasons[0]}

    async def _find(self, blob: FollowedBlob) -> RecordChange:
        """NTC-004: a record that no notice told. A hit counts when its bytes are right, or policy trusts receipts."""
        assert self._archive is not None
        place = f"{self._chain.chain_id}/{blob.height}/{blob.number}"
        for locator in await self._archive.find(place, blob.versioned_hash):
            is_trusted = self._policy.trust_receipts
            if not is_trusted and await self._why_not_held(blob, locator) is not None:
                continue
            self._metrics.found_in_archive += 1
            _log.info("item_found", height=blob.height, index=blob.number, is_read_back=not is_trusted)
            return {
                "status": BlobStatus.ARCHIVED,
                "assurance": SIGNED if is_trusted else VERIFIED,
                "provider_id": self._archive.id,
                "locator": locator,
                "notice": b"",
                "reason": "",
            }
        return {}

    async def _why_not_held(self, blob: FollowedBlob, locator: str) -> str | None:
        assert self._archive is not None
        raw = await self._archive.fetch(locator)
        if raw is None:
            return "the archive does not have it"
        if len(raw) != BLOB_BYTES:
            return f"{len(raw)} bytes, expected {BLOB_BYTES}"
        (is_same,) = await self._kzg.verify([(raw, KzgWork(blob.commitment, blob.proof, blob.keccak))])
        return None if is_same else "other bytes than those that the block commits to"
