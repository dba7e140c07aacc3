"""Archives the blobs of final blocks that this node has proposed (ARC-001 … ARC-003); no block waits for it.

An intent is stored before anything is sent, and the item is signed, so that its id is known: an upload that succeeded
without an answer is found to be there. What is archived is read back and compared before it counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from holdfast.core.archive.decide import is_stalled, is_unarchived, must_read_back
from holdfast.core.archive.messages import SIGNED, VERIFIED, AcceptNotice, IntendUpload, RecordUploadFailure
from holdfast.core.archive.notice import ADDRESS_BYTES, ArchiveNotice, notice_root
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.core.base.values import ChainId, Height, VerifySignature
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.blob.model import Blob
from holdfast.core.policy import DAY_MS
from holdfast.core.validator.model import validator_set
from holdfast.engine.loop import Engine
from holdfast.ports import Signer
from holdfast.ports.blobs import ArchiveProvider, BlobFiles, ItemUpload, Kzg, KzgWork, PackName
from holdfast.wire.ans104 import Tag, build_item
from holdfast.workers.archive.archive_metrics import ArchiveMetrics
from holdfast.workers.archive.due_heights import QUEUE_MAX, DueHeights
from holdfast.workers.archive.verify_batches import VerifyBatches

RETRY_S: Final = 1.0
DELAYED_HINT: Final = "the others follow tomorrow; policy.archive.bytes_per_day_max allows more"
GROUP_MIN: Final = 16
"""Blobs of a height whose intents are stored together, and which are in memory together."""
HEIGHTS_AHEAD: Final = 2
"""While one height is uploaded the next is read and intended, and the one before is verified and recorded."""
_log = structlog.get_logger()


class UploadFault(Exception):
    """Why a blob could not be archived now."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


class StoredBlob(NamedTuple):
    """Where an archive has a blob, and how sure that is."""

    locator: str
    assurance: str


class Archiver:
    """Every height that is due, some at a time: its blobs at once, its records in the order of their indexes."""

    def __init__(
        self,
        engine: Engine,
        provider: ArchiveProvider,
        files: BlobFiles,
        kzg: Kzg,
        signer: Signer,
        verify: VerifySignature,
        keccak: Callable[[bytes], bytes],
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._engine, self._provider, self._files, self._signer = engine, provider, files, signer
        self._verify, self._keccak, self._batches = verify, keccak, VerifyBatches(kzg)
        self._uploads = asyncio.Semaphore(engine.policy.archive.uploads_at_once_max)
        self._day: tuple[int, int] = (0, 0)
        """The day, and the bytes of the heights that were begun in it."""
        self._delayed_day = -1
        self._changed = engine.changed.subscribe()
        self._due = DueHeights(engine, signer.public, queue_max)
        self.metrics = ArchiveMetrics()
        self.on_archived: Callable[[Height], Awaitable[object]] | None = None
        """Called with a height whose blobs are all archived: its bytes may go at once."""

    async def run(self) -> None:
        """Woken by blocks that become final, and by the clock for what has to wait or was asked for again."""
        while True:
            try:
                await self._work()
            except (Unavailable, Corrupt) as fault:
                _log.warning("archive_run_failed", reason=str(fault))
                await asyncio.sleep(RETRY_S)
            if self._has_room():
                await self._due.wait_for_work(self._changed)
            else:
                await asyncio.sleep(RETRY_S)

    async def run_once(self) -> None:
        """Everything that is due now."""
        await self._due.rescan()
        await self._work()

    async def _work(self) -> None:
        """Heights begin in their order, some more than there are uploads: a slow one holds no other up."""
        await self._due.refresh()
        self.metrics.queue_len = self._due.queue_len
        if not self._due.has_work():
            return
        running: set[asyncio.Task[None]] = set()
        try:
            while running or self._due.has_work():
                heights_max = self._engine.policy.archive.uploads_at_once_max + HEIGHTS_AHEAD
                while len(running) < heights_max and self._has_room():
                    height = self._due.take()
                    if height is None:
                        break
                    self._take_room(height)
                    running.add(asyncio.create_task(self._archive_taken(height)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                await self._due.refresh()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _has_room(self) -> bool:
        """`bytes_per_day_max` delays, and says so."""
        limit, day = self._engine.policy.archive.bytes_per_day_max, self._engine.now_ms() // DAY_MS
        if self._day[0] != day:
            self._day = (day, 0)
        if not limit or self._day[1] < limit:
            return True
        if self._delayed_day != day:  # told once a day
            _log.warning("archive_delayed", reason=f"{limit} bytes were uploaded today", hint=DELAYED_HINT)
            self._delayed_day = day
        return False

    def _take_room(self, height: Height) -> None:
        """A height counts when it is begun, so that no more than one goes beyond the limit."""
        lives = self._engine.undurable_state.blob_heights.get(height, ())
        self._day = (self._day[0], self._day[1] + BLOB_BYTES * sum(is_unarchived(live.blob) for live in lives))

    async def _archive_taken(self, height: Height) -> None:
        try:
            await self._archive_height(height)
        finally:
            self._due.finish(height)

    async def _archive_height(self, height: Height) -> None:
        """Its blobs in groups, each of them recorded before the next one begins."""
        began = time.monotonic()
        blobs = [live.blob for live in self._engine.undurable_state.blob_heights.get(height, ())]
        blobs = [blob for blob in blobs if is_unarchived(blob)]
        group_max = max(GROUP_MIN, self._engine.policy.archive.uploads_at_once_max)
        for start in range(0, len(blobs), group_max):
            if not await self._archive_group(blobs[start : start + group_max]):
                self.metrics.heights_failed += 1
                return
        self.metrics.heights_good += 1
        self.metrics.height_ms.add(int((time.monotonic() - began) * 1_000))
        if self.on_archived is not None:
            await self.on_archived(height)

    async def _archive_group(self, blobs: list[Blob]) -> bool:
        """Whether all of them are archived now; receipts are recorded in their order, up to the first that failed."""
        items = await self._intend(blobs)
        outcomes = await asyncio.gather(*(self._upload(*each) for each in zip(blobs, items, strict=True)))
        self.metrics.attempts_failed += sum(isinstance(outcome, UploadFault) for outcome in outcomes)
        good: list[tuple[Blob, StoredBlob]] = []
        for blob, outcome in zip(blobs, outcomes, strict=True):
            if isinstance(outcome, UploadFault):
                await self._record(good)
                await self._record_failure(blob, outcome)
                return False
            good.append((blob, outcome))
        await self._record(good)
        return True

    async def _intend(self, blobs: list[Blob]) -> list[ItemUpload | UploadFault]:
        """ARC-002: the items, whose intents are durable, all with one sync, before any of their bytes is sent."""
        items = list(await asyncio.gather(*(self._prepare(blob) for blob in blobs)))
        signed_at = [at for at, item in enumerate(items) if isinstance(item, ItemUpload)]
        intents = [
            IntendUpload(blobs[at].height, blobs[at].number, self._signer.public, self._provider.id, item.id)
            for at in signed_at
            if isinstance(item := items[at], ItemUpload)
        ]
        outcomes = await self._engine.submit_many(intents) if intents else []
        for at, outcome in zip(signed_at, outcomes, strict=True):
            if isinstance(outcome, Refused):
                items[at] = UploadFault(outcome.message)
        return items

    async def _record_failure(self, blob: Blob, fault: UploadFault) -> None:
        await self._engine.submit(RecordUploadFailure(blob.height, blob.number, str(fault), fault.is_refused))
        is_over = is_stalled(self._engine.policy.archive, blob)
        log = _log.error if is_over else _log.warning
        hint = "it is tried again once an hour; `holdfast blob retry` tries now" if is_over else "it is tried again"
        log(
            "upload_stalled" if is_over else "upload_failed",
            height=blob.height,
            index=blob.number,
            attempt=blob.attempts,
            reason=str(fault),
            hint=hint,
        )

    async def _record(self, stored: list[tuple[Blob, StoredBlob]]) -> None:
        """All records of a height in one batch, in their order."""
        notices = [self._sign(blob, at.locator) for blob, at in stored]
        commands = [
            AcceptNotice(notice, self._verify, self._address_of, at.assurance)
            for notice, (_, at) in zip(notices, stored, strict=True)
        ]
        outcomes = await self._engine.submit_many(commands) if commands else []
        for (blob, at), notice, outcome in zip(stored, notices, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self.metrics.notices_refused[outcome.name] += 1
                _log.warning("notice_refused", height=blob.height, index=blob.number, reason=str(outcome))
                continue
            self.metrics.attempts_good += 1
            locator = self._keccak(notice.locator.encode())[:8].hex()
            _log.info(
                "blob_archived", height=blob.height, index=blob.number, locator_hash=locator, assurance=at.assurance
            )

    # ------------------------------------------------------------------------------------ one blob

    async def _prepare(self, blob: Blob) -> ItemUpload | UploadFault:
        """The signed item: every attempt makes the same."""
        try:
            return await asyncio.to_thread(self._build_item, blob, await self._read(blob))
        except (Unavailable, Corrupt) as fault:
            return UploadFault(str(fault))
        except UploadFault as fault:
            return fault

    async def _upload(self, blob: Blob, item: ItemUpload | UploadFault) -> StoredBlob | UploadFault:
        """Upload and, as policy says, read back; where it is, and how sure that is."""
        if isinstance(item, UploadFault):
            return item
        began = time.monotonic()
        try:
            stored = await self._upload_now(blob, item)
        except (Unavailable, Corrupt) as fault:
            return UploadFault(str(fault))
        except UploadFault as fault:
            return fault
        self.metrics.blob_ms.add(int((time.monotonic() - began) * 1_000))
        return stored

    async def _upload_now(self, blob: Blob, item: ItemUpload) -> StoredBlob:
        async with self._uploads:
            await self._provider.open()  # a folder that is not mounted is a failed upload like any other
            stored = await self._provider.store(item)
            if isinstance(stored, Refused):
                raise UploadFault(stored.message, is_refused=True)
            self.metrics.uploaded_bytes += len(item.raw)
            locator = stored or self._provider.locator_of(item.id)
            if not must_read_back(self._engine.policy.archive, blob.versioned_hash):
                return StoredBlob(locator, SIGNED)
            raw = await self._provider.fetch(locator)
        if fault := await self._why_not_same(blob, raw):  # meanwhile the next one is uploaded
            self.metrics.receipts_mismatched += 1
            raise UploadFault(f"read back: {fault}")
        return StoredBlob(locator, VERIFIED)

    async def _read(self, blob: Blob) -> bytes:
        pack = PackName(blob.height, blob.block_hash)
        raw = await self._files.read(pack, blob.number, blob.versioned_hash, blob.keccak)
        if raw is None:
            raise UploadFault("its bytes are not on this node any more")
        return raw

    async def why_not_held(self, blob: Blob, locator: str) -> str | None:
        """What is wrong with the archive's copy of a blob; None where it is good."""
        return await self._why_not_same(blob, await self._provider.fetch(locator))

    async def _why_not_same(self, blob: Blob, raw: bytes | None) -> str | None:
        """ARC-004: length, Keccak-256 and KZG of what the archive has."""
        if raw is None:
            return "the archive does not have it"
        if len(raw) != BLOB_BYTES:
            return f"{len(raw)} bytes, expected {BLOB_BYTES}"
        is_same = await self._batches.is_same(raw, KzgWork(blob.commitment, blob.proof, blob.keccak))
        return None if is_same else "other bytes than those that the block commits to"

    async def record_verified(self, blob: Blob) -> bool:
        """A record of ours that was only signed, now that it was read back; whether it changed."""
        if not validator_set(self._engine.undurable_state).speaks_for(self._signer.public, blob.proposer):
            return False
        notice = self._sign(blob, blob.locator)
        outcome = await self._engine.submit(AcceptNotice(notice, self._verify, self._address_of, VERIFIED))
        return not isinstance(outcome, Refused)

    async def upload_again(self, blob: Blob, raw: bytes) -> bool:
        """The same item as before, from these bytes: whether the archive has it again, where the record says."""
        if self._keccak(raw) != blob.keccak or blob.archived_by != self._address_of(self._signer.public):
            return False
        item = await asyncio.to_thread(self._build_item, blob, raw)
        stored = await self._provider.store(item)
        is_there = not isinstance(stored, Refused) and (stored or self._provider.locator_of(item.id)) == blob.locator
        return is_there and await self.why_not_held(blob, blob.locator) is None

    def _build_item(self, blob: Blob, raw: bytes) -> ItemUpload:
        built = build_item(self._signer, self._tags(blob), raw)
        assert not isinstance(built, Refused), "our own tags are within the limits"
        chain = self._engine.policy.chain_id
        is_retry = bool(blob.attempts or blob.item_id)
        place = f"{chain}/{blob.height}/{blob.number}"
        return ItemUpload(built[0], built[1], place, raw, tuple(self._tags(blob)), is_retry)

    def _tags(self, blob: Blob) -> list[Tag]:
        values = {
            "content_type": "application/octet-stream",
            "height": str(blob.height),
            "round": "0",
            "blob_index": str(blob.number),
            "kzg_commitment": f"0x{blob.commitment.hex()}",
            "versioned_hash": f"0x{blob.versioned_hash.hex()}",
            "proposer": f"0x{self._address_of(self._signer.public).hex()}",
        }
        named = values | {f"load.{name}": value for name, value in values.items()}
        return [(name.encode(), value.encode()) for name, value in named.items()]

    def _sign(self, blob: Blob, locator: str = "") -> ArchiveNotice:
        """NTC-001: with the time of the intent, so that it is the same whenever it is sent."""
        version = self._engine.policy.archive.notice_version
        fields = {"chain_id": ChainId(self._engine.policy.chain_id), "versioned_hash": blob.versioned_hash}
        notice = ArchiveNotice(
            version=version,
            height=blob.height,
            blob_index=blob.number,
            kzg_commitment=blob.commitment,
            blob_keccak=blob.keccak,
            provider_id=self._provider.id,
            locator=locator or self._provider.locator_of(blob.item_id),
            archived_by=self._address_of(self._signer.public),
            archived_at=blob.archived_at,
            **(fields if version == 1 else {}),  # type: ignore[arg-type]
        )
        return signed(notice, self._signer)

    def _address_of(self, public: bytes) -> bytes:
        return self._keccak(public)[:ADDRESS_BYTES]


def signed(notice: ArchiveNotice, signer: Signer) -> ArchiveNotice:
    return msgspec.structs.replace(notice, signature=signer.sign(notice_root(notice)))
