"""Reads of blobs that look into the tables: where the bytes of results are (BLB-002, RES-009)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.base.values import EventNo, TaskId
from holdfast.core.blob.model import Blob, BlobStatus, StoredPart
from holdfast.core.tables import record_from_row
from holdfast.engine.queries.source import ReadSource
from holdfast.ports import Row


class PlacedPart(msgspec.Struct, frozen=True):
    """Some bytes of a result's frame, and the blob that has them."""

    part: StoredPart
    blob: Blob


async def find_parts(source: ReadSource, column: str, values: Sequence[bytes | int]) -> list[PlacedPart]:
    """Parts by `task_id`, `result_digest` or `blob`, in order; those of orphaned blocks are left out."""
    rows = await source.tables.find("blob_part", column, list(values))
    parts = sorted((record_from_row(StoredPart, row) for row in rows), key=lambda part: part.place)
    blobs: dict[EventNo, Blob] = {}
    for event in {part.blob for part in parts}:
        row, _ = await source.tables.get("blob", event)
        if row is not None:
            blobs[event] = blob_of(row)
    placed = (PlacedPart(part, blobs[part.blob]) for part in parts if part.blob in blobs)
    return [each for each in placed if each.blob.status is not BlobStatus.ORPHANED]


async def find_blobs(source: ReadSource, versioned_hashes: Sequence[bytes]) -> list[Blob]:
    """Blobs by their hash, in whichever block of the active chain; the same bytes may be in several."""
    rows = await source.tables.find("blob", "versioned_hash", list(versioned_hashes))
    blobs = sorted(map(blob_of, rows), key=lambda blob: blob.event)
    return [blob for blob in blobs if blob.status is not BlobStatus.ORPHANED]


async def find_locators(source: ReadSource, task_id: TaskId) -> list[str]:
    """Where the archive has a result's bytes, in their order; empty where any part is in no archive."""
    blobs = [placed.blob for placed in await find_parts(source, "task_id", [task_id])]
    locators = [blob.locator for blob in blobs if blob.status is BlobStatus.ARCHIVED]
    return locators if len(locators) == len(blobs) else []


def blob_of(row: Row) -> Blob:
    return record_from_row(Blob, row)
