"""What an event does to the records of blobs."""

from __future__ import annotations

import msgspec

from holdfast.core.archive.confirm import await_confirmations
from holdfast.core.archive.messages import (
    ArchiveLost,
    BlobArchived,
    BlobsPruned,
    BlobsRecalled,
    UploadFailed,
    UploadIntended,
    UploadsRetried,
)
from holdfast.core.base.values import Height
from holdfast.core.blob.model import (
    ARCHIVED,
    ARCHIVED_HEIGHT,
    PRUNED,
    Blob,
    BlobStatus,
    HasBlobs,
    LiveBlob,
    all_blobs,
    touch_blob,
)


def apply_intended(state: HasBlobs, event: UploadIntended) -> None:
    blob = _changed(state, event.height, event.number)
    blob.item_id, blob.provider_id, blob.archived_at = event.item_id, event.provider_id, event.archived_at


def apply_failed(state: HasBlobs, event: UploadFailed) -> None:
    blob = _changed(state, event.height, event.number)
    blob.attempts, blob.retry_ms, blob.reason = event.attempts, event.retry_ms, event.reason


def apply_retried(state: HasBlobs, event: UploadsRetried) -> None:
    for live in all_blobs(state):
        if live.blob.attempts and event.height in (0, live.blob.height):
            blob = touch_blob(state, live)
            blob.attempts, blob.retry_ms = 0, 0


def apply_archived(state: HasBlobs, event: BlobArchived) -> None:
    """NTC-003: the first record stays; another locator stands beside it."""
    blob = _changed(state, event.height, event.number)
    if event.is_alternate:
        blob.alternates = "\n".join([*blob.alternates.splitlines(), event.locator])
        return
    if blob.status is BlobStatus.PENDING:
        progress = state.blob_progress
        progress[ARCHIVED] = progress.get(ARCHIVED, 0) + 1
        progress[ARCHIVED_HEIGHT] = max(progress.get(ARCHIVED_HEIGHT, 0), event.height)
    blob.status, blob.assurance, blob.signature = BlobStatus.ARCHIVED, event.assurance, event.signature
    blob.provider_id, blob.locator, blob.archived_by = event.provider_id, event.locator, event.archived_by
    blob.archived_at, blob.attempts, blob.retry_ms, blob.reason = event.archived_at, 0, 0, ""
    await_confirmations(state, event)


def apply_pruned(state: HasBlobs, event: BlobsPruned) -> None:
    """PRU-001: the flag is durable before the bytes go."""
    for live in state.blob_heights[event.height]:
        touch_blob(state, live).is_pruned = 1
        state.blob_progress[PRUNED] = state.blob_progress.get(PRUNED, 0) + 1


def apply_lost(state: HasBlobs, event: ArchiveLost) -> None:
    blob = _changed(state, event.height, event.number)
    blob.status, blob.reason, blob.item_id = BlobStatus.SUSPECT, event.reason, ""


def apply_recalled(state: HasBlobs, event: BlobsRecalled) -> None:
    """The height is in memory again, in its order; what the archive lost is suspect."""
    lives = [LiveBlob(msgspec.structs.replace(each.blob), each.parts, each.changed) for each in event.lives]
    state.blob_heights = dict(sorted((state.blob_heights | {event.height: lives}).items()))
    for live in lives:
        blob = touch_blob(state, live)
        blob.is_pruned = int(not event.are_here)
        if blob.number in event.lost:
            blob.status, blob.reason, blob.item_id = BlobStatus.SUSPECT, event.reason, ""


def _changed(state: HasBlobs, height: Height, number: int) -> Blob:
    return touch_blob(state, state.blob_heights[height][number])
