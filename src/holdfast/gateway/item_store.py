"""Items in the object store: stored completely before anyone is answered, checked by hash before they are served.

The order of writing is data and item record, then the record of the upload, then the index. Whoever finds a record of
an upload finds the item; the index is behind at most, never ahead (ARC-004).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from holdfast.adapters.item_index import BucketEntry, IndexedItem, ItemIndex, tag_key
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.gateway.records import (
    CHUNK_BYTES,
    BucketRecord,
    ItemRecord,
    UploadRecord,
    bucket_key,
    content_type_of,
    data_key,
    decode_bucket,
    decode_item,
    decode_upload,
    encode,
    item_key,
    meta_prefix,
)
from holdfast.ports.objects import Objects
from holdfast.wire.ans104 import ItemHeader, base64url

BUCKETS_CACHED: Final = 10_000
INLINE_BYTES: Final = 64 << 10
_log = structlog.get_logger()


class NewItem(NamedTuple):
    """An item whose signature was checked or just made."""

    header: ItemHeader
    source: bytes | Path
    data_size: int
    chunks: tuple[bytes, ...]

    @property
    def record(self) -> ItemRecord:
        return ItemRecord(header=self.header.encode(), data_size=self.data_size, chunks=self.chunks)


class ItemStore:
    """Objects and index of one gateway."""

    def __init__(self, objects: Objects, index: ItemIndex) -> None:
        self.objects, self.index = objects, index
        self.unindexed: dict[str, UploadRecord] = {}
        """Uploads that are stored and that the index failed to take; they are added again in the background."""
        self._buckets: dict[str, str] = {}

    # ------------------------------------------------------------------------------------ storing

    async def store(self, item: NewItem, upload: UploadRecord) -> UploadRecord:
        """Make the item durable and findable; the record of the first upload at that place.

        Unavailable where the store or the index fails. An item that is stored and not indexed stays stored.
        """
        record = item.record
        await asyncio.gather(self._put_data(upload.id, item), self._put_record(upload.id, record))
        if not await self.objects.put_once(upload.key, encode(upload)):
            upload = await self._stored_upload(upload)
        await self.add_to_index(upload, record)
        return upload

    async def add_to_index(self, upload: UploadRecord, record: ItemRecord) -> None:
        item, tags, entry = index_row(upload, record)
        try:
            await self.index.add(item, tags, entry)
        except BaseException:
            self.unindexed[upload.key] = upload
            raise
        self.unindexed.pop(upload.key, None)

    async def _put_data(self, id_: str, item: NewItem) -> None:
        """What is there already counts only if it is the same: a damaged copy is replaced."""
        key = data_key(id_)
        if await self.objects.put_once(key, item.source):
            return
        if await self.faults_of_data(id_, item.record):
            _log.warning("item_repaired", id=id_, object=key)
            await self.objects.replace(key, item.source)

    async def _put_record(self, id_: str, record: ItemRecord) -> None:
        key, raw = item_key(id_), encode(record)
        if not await self.objects.put_once(key, raw) and await self.objects.read(key) != raw:
            _log.warning("item_repaired", id=id_, object=key)
            await self.objects.replace(key, raw)

    async def _stored_upload(self, upload: UploadRecord) -> UploadRecord:
        raw = await self.objects.read(upload.key)
        try:
            return decode_upload(raw or b"", upload.key)
        except Corrupt:
            await self.objects.replace(upload.key, encode(upload))
            return upload

    # ------------------------------------------------------------------------------------ buckets

    async def take_bucket(self, bucket: str, key_id: str, now_ms: int) -> bool:
        """Whether the bucket is this key's: a new one belongs to the first that asks."""
        owner = await self.bucket_owner(bucket)
        if owner is None:
            record = encode(BucketRecord(key_id=key_id, created_ms=now_ms))
            if await self.objects.put_once(bucket_key(bucket), record):
                owner = key_id
            else:
                owner = await self.bucket_owner(bucket)
        return owner == key_id

    async def bucket_owner(self, bucket: str) -> str | None:
        if (known := self._buckets.get(bucket)) is not None:
            return known
        raw = await self.objects.read(bucket_key(bucket))
        if raw is None:
            return None
        if len(self._buckets) >= BUCKETS_CACHED:
            self._buckets.clear()
        self._buckets[bucket] = decode_bucket(raw, bucket_key(bucket)).key_id
        return self._buckets[bucket]

    # ------------------------------------------------------------------------------------ reading

    async def record_of(self, id_: str) -> ItemRecord | None:
        raw = await self.objects.read(item_key(id_))
        return None if raw is None else decode_item(raw, item_key(id_))

    async def uploads_of(self, id_: str) -> list[UploadRecord]:
        uploads, prefix = [], meta_prefix(id_)
        async for each in self.objects.list(prefix.rpartition("/")[0], prefix):
            if not each.key.startswith(prefix):
                break
            if (raw := await self.objects.read(each.key)) is not None:
                uploads.append(decode_upload(raw, each.key))
        return uploads

    async def is_public(self, id_: str) -> bool:
        """The index knows most; what it does not know, or what became public since, the store does."""
        try:
            item = await self.index.get(id_)
        except (Unavailable, Corrupt):
            item = None
        if item is not None and item.is_public:
            return True
        return await self.objects.size(UploadRecord(id=id_, created_ms=0, key_id="").key) is not None

    async def may_read(self, id_: str, key_id: str | None) -> bool:
        if await self.is_public(id_):
            return True
        if key_id is None:
            return False
        owners = [await self.bucket_owner(upload.bucket) for upload in await self.uploads_of(id_)]
        return key_id in owners

    async def read(self, id_: str, record: ItemRecord, start: int, end: int) -> AsyncIterator[bytes]:
        """The data from `start` up to `end`, each chunk checked before any byte of it is given out; else Corrupt."""
        for number in range(start // CHUNK_BYTES, -(-end // CHUNK_BYTES)):
            first = number * CHUNK_BYTES
            chunk = await self._chunk(id_, record, number)
            yield chunk[max(0, start - first) : end - first]

    async def faults_of_data(self, id_: str, record: ItemRecord) -> str | None:
        """What is wrong with the stored data; None where it is what was uploaded."""
        size = await self.objects.size(data_key(id_))
        if size is None:
            return "missing"
        if size != record.data_size:
            return f"{size} bytes, expected {record.data_size}"
        try:
            for number in range(len(record.chunks)):
                await self._chunk(id_, record, number)
        except Corrupt as fault:
            return fault.message
        return None

    async def _chunk(self, id_: str, record: ItemRecord, number: int) -> bytes:
        length = min(CHUNK_BYTES, record.data_size - number * CHUNK_BYTES)
        chunk = await self.objects.read(data_key(id_), number * CHUNK_BYTES, length)
        if chunk is None:
            raise Corrupt("ARC-004", f"{data_key(id_)} is missing", "restore it, or upload the item again")
        digest = _sha256(chunk) if len(chunk) <= INLINE_BYTES else await asyncio.to_thread(_sha256, chunk)
        if digest != record.chunks[number]:
            message = f"{data_key(id_)} is damaged in its chunk {number}"
            raise Corrupt("ARC-004", message, "restore it, or upload the item again")
        return chunk


def index_row(upload: UploadRecord, record: ItemRecord) -> tuple[IndexedItem, list[bytes], BucketEntry | None]:
    """What the index holds of an upload; private items have no tags there."""
    header = record.parsed()
    item = IndexedItem(
        id=upload.id,
        created_ms=upload.created_ms,
        size=record.size,
        content_type=content_type_of(header),
        owner=header.owner_address,
        target=base64url(header.target),
        raw_tags=header.raw_tags,
        key_id=upload.key_id,
        is_public=upload.is_public,
    )
    if upload.is_public:
        return item, list(dict.fromkeys(tag_key(name, value) for name, value in header.tags)), None
    entry = BucketEntry(upload.bucket, upload.folder, upload.id, upload.name, upload.created_ms)
    return item, [], entry


def _sha256(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
