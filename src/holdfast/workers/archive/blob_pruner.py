"""Deletes the bytes of heights whose blobs are all archived (PRU-001): by heights alone, never by the clock.

The flag is durable before the bytes go: a crash in between leaves bytes too many, which the next start deletes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from holdfast.core.archive.decide import is_unarchived, why_not_prune
from holdfast.core.archive.messages import PruneBlobs
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import Height
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import Blob
from holdfast.core.chain.model import final_height
from holdfast.engine.loop import Engine
from holdfast.ports.blobs import BlobFiles, PackName
from holdfast.workers.archive.archive_metrics import ArchiveMetrics

INTERVAL_MS: Final = 500
STEP: Final = 256
"""Heights that are looked at before others get a turn."""
SHARE: Final = 20
_log = structlog.get_logger()


class BlobPruner:
    """One run: every height that may go. `is_key_kept` says whether somebody else can decrypt what is archived."""

    starts_at_once = True

    def __init__(
        self, engine: Engine, files: BlobFiles, metrics: ArchiveMetrics, is_key_kept: Callable[[], bool]
    ) -> None:
        self._engine, self._files, self._metrics, self._is_key_kept = engine, files, metrics, is_key_kept
        self._deleted: set[PackName] = set()
        self.interval_ms = INTERVAL_MS
        """Longer where a run over all heights takes long; an archived height is pruned when its last record is made."""
        self._is_resumed = False
        self._has_warned = False

    async def run_once(self) -> None:
        if not self._is_resumed:
            await self._resume()
        began = time.monotonic()
        for number, height in enumerate(list(self._engine.undurable_state.blob_heights), 1):
            if height > final_height(self._engine.undurable_state):
                break
            if not self._is_waiting(height):
                await self.prune(height)
            if number % STEP == 0:
                await asyncio.sleep(0)
        self.interval_ms = max(INTERVAL_MS, int(SHARE * (time.monotonic() - began) * 1_000))

    def _is_waiting(self, height: Height) -> bool:
        """Cheap, for the many heights that no archive has yet."""
        lives = self._engine.undurable_state.blob_heights.get(height)
        return lives is not None and is_unarchived(lives[0].blob)

    async def prune(self, height: Height) -> Refused | None:
        """PRU-001, PRU-002: why the bytes of this height stay; None where they are gone."""
        blobs = [live.blob for live in self._engine.undurable_state.blob_heights.get(height, ())]
        if not blobs:
            return None
        pack = PackName(height, blobs[0].block_hash)
        if not blobs[0].is_pruned:
            self._deleted.discard(pack)  # it may have been recalled
            if refusal := why_not_prune(self._engine.undurable_state, height) or self._why_not_key():
                return refusal
            if not await self._are_ours(pack, blobs):
                return Refused("PRU-001", f"the bytes of height {height} are not what was stored", "blob audit")
        if pack in self._deleted:
            return None
        outcome = await self._engine.submit(PruneBlobs(height))  # a flag that another call has set may not be durable
        if isinstance(outcome, Refused):
            return outcome
        # Archiver and pruner may be faster than the packer: then the blobs are loose.
        were_there = await self._files.delete_pack(pack, [blob.versioned_hash for blob in blobs])
        self._count(were_there, height, len(blobs))
        self._deleted.add(pack)
        return None

    def _why_not_key(self) -> Refused | None:
        """BLB-003: nothing encrypted is deleted while its only key is on this machine."""
        if self._is_key_kept():
            return None
        refusal = Refused("BLB-003", "the archive key is on this machine alone", "holdfast archive key export FILE")
        if not self._has_warned:
            _log.warning("pruning_waits", reason=str(refusal))
        self._has_warned = True
        return refusal

    async def _are_ours(self, pack: PackName, blobs: list[Blob]) -> bool:
        """NTC-002: hashed once more, from the disk; what is gone already may be pruned."""
        try:
            for blob in blobs:
                await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        except Corrupt as fault:
            self._metrics.prune_failures += 1
            _log.error("prune_failed", height=pack.height, reason=str(fault))
            return False
        return True

    def _count(self, was_there: bool, height: Height, blobs: int) -> None:
        self._metrics.pruned += blobs
        if was_there:
            self._metrics.pruned_bytes += blobs * BLOB_BYTES
        else:
            self._metrics.prune_failures += 1
        _log.info("blobs_pruned", height=height, blobs=blobs, were_there=was_there)

    async def _resume(self) -> None:
        """Packs that a killed pruner was about to delete, of heights that have left memory since."""
        live = self._engine.undurable_state.blob_heights
        for pack in await self._files.packs():
            if pack.height not in live:
                rows, _ = await self._engine.tables.page("blob", {"height": pack.height}, 0, 1_000)
                if rows and all(row[-1] for row in rows if row[3] == pack.block_hash):
                    await self._files.delete_pack(pack)
        self._is_resumed = True
