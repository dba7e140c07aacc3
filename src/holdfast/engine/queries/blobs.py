"""Queries about blobs and their archive: what memory has of a height, and how far the archive is (BLB-002, ARC-001)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.archive.decide import is_stalled, is_unarchived, pending_under_old_keys, why_not_prune
from holdfast.core.base.values import EventNo, Height
from holdfast.core.blob.model import ARCHIVED, ARCHIVED_HEIGHT, PRUNED, Blob, all_blobs, cursor_of
from holdfast.core.chain.model import final_height
from holdfast.core.state import State
from holdfast.engine.queries.query import Query


class GetLiveBlobs(Query[list[Blob]], frozen=True):
    """The blobs of a height whose bytes this node has, or had a moment ago."""

    height: Height


class ArchiveProgress(msgspec.Struct, frozen=True):
    """How far the archive is."""

    archived: int
    pruned: int
    pending: int
    """Blobs in blocks that no archive has yet …"""
    stalled: int
    """… of these, those of heights at which an upload failed too often: a height is tried as a whole."""
    waiting_again: int
    """Blobs of orphaned blocks."""
    lag_blocks: int
    """Blocks from the last archived height to the last final one, where something waits."""
    backlog_height: int
    """The lowest height with a blob that no archive has; 0 where there is none."""
    pruner_backlog_height: int
    """The lowest height whose bytes are here."""
    old_key_heights: int = 0
    """Heights that only a key could archive that is no validator any more (NTC-005)."""
    lost: int = 0
    """Blobs that neither the archive nor any node has (PRU-001): they do not wait for anything."""
    head: Height = Height(0)
    packed_event: EventNo = EventNo(0)
    """Results up to this event are in blobs as a whole."""
    unpacked: int = 0
    """Results that wait for their blob to fill, counted up to 500 …"""
    unpacked_height: int = 0
    """… and the lowest height of theirs; 0 where there is none."""
    blob_wait_blocks: int = 0
    """A blob is closed when its first result is as many blocks old, full or not."""
    is_on: bool = True
    """An archive is configured."""


class GetArchiveProgress(Query[ArchiveProgress], frozen=True):
    """How far the archive is."""


class ListPrunable(Query[list[Height]], frozen=True):
    """PRU-001: the heights whose bytes may be deleted now."""


def _get_live_blobs(state: State, query: GetLiveBlobs) -> list[Blob]:
    return [msgspec.structs.replace(live.blob) for live in state.blob_heights.get(query.height, ())]


def archive_progress(state: State) -> ArchiveProgress:
    unarchived = [live.blob for live in all_blobs(state) if is_unarchived(live.blob)]
    waiting = [blob for blob in unarchived if not blob.is_pruned]
    stalled = {blob.height for blob in waiting if is_stalled(state.policy.archive, blob)}
    kept = [live.blob.height for live in all_blobs(state) if not live.blob.is_pruned]
    progress, final = state.blob_progress, final_height(state)
    return ArchiveProgress(
        archived=progress.get(ARCHIVED, 0),
        pruned=progress.get(PRUNED, 0),
        pending=len(waiting),
        stalled=sum(blob.height in stalled for blob in waiting),
        waiting_again=len(state.blob_pool),
        lag_blocks=max(0, final - progress.get(ARCHIVED_HEIGHT, 0)) if waiting else 0,
        backlog_height=min((blob.height for blob in waiting), default=0),
        pruner_backlog_height=min(kept, default=0),
        old_key_heights=sum(map(len, pending_under_old_keys(state).values())),
        lost=len(unarchived) - len(waiting),
        head=state.chain.head.height,
        packed_event=cursor_of(state).event,
        blob_wait_blocks=state.policy.archive.blob_wait_blocks,
    )


def _list_prunable(state: State, _: ListPrunable) -> list[Height]:
    heights = [height for height, lives in state.blob_heights.items() if not lives[0].blob.is_pruned]
    return [height for height in heights if why_not_prune(state, height) is None]


def _get_archive_progress(state: State, _: GetArchiveProgress) -> ArchiveProgress:
    return archive_progress(state)


QUERIES: Final = {
    GetLiveBlobs: _get_live_blobs,
    GetArchiveProgress: _get_archive_progress,
    ListPrunable: _list_prunable,
}
