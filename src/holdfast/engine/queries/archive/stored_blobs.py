"""The blobs of a final height with their parts, as the tables have them: memory may not hold them (BLB-002)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.model import Blob, BlobPart, BlobStatus, LiveBlob, StoredPart
from holdfast.engine.queries.source import ReadSource

_PAGE: Final = 500


async def stored_blobs(source: ReadSource, height: Height) -> list[LiveBlob]:
    """In the order of their indexes; those of orphaned blocks are left out."""
    await source.wait_tables(source.replication_status().tip.last)
    blobs, after = list[Blob](), 0
    while True:
        rows, _ = await source.tables.page("blob", {"height": height}, after, _PAGE)
        blobs += [msgspec.convert(row, Blob, builtin_types=(bytes,)) for row in rows]
        if len(rows) < _PAGE:
            break
        after = blobs[-1].event
    live = sorted((blob for blob in blobs if blob.status is not BlobStatus.ORPHANED), key=lambda blob: blob.number)
    return [LiveBlob(blob, await _parts_of(source, blob), EventNo(0)) for blob in live]


async def _parts_of(source: ReadSource, blob: Blob) -> tuple[BlobPart, ...]:
    rows = await source.tables.find("blob_part", "blob", [blob.event])
    parts = sorted(
        (msgspec.convert(row, StoredPart, builtin_types=(bytes,)) for row in rows), key=lambda row: row.place
    )
    return tuple(BlobPart(part.task_id, part.result_digest, part.offset, part.length) for part in parts)
