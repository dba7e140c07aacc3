"""Queries about retention (RET-002): how far its passes have come, and which bytes may be deleted."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import Digest, EventNo, Height
from holdfast.core.retention.decide import retention_watermark, unreferenced
from holdfast.core.retention.messages import OrphanFile
from holdfast.core.retention.model import Pass, PassProgress, pass_position
from holdfast.core.state import State
from holdfast.engine.queries.query import Query


class RetentionProgress(msgspec.Struct, frozen=True):
    """How far each pass has come."""

    watermark: Height
    """Results up to this height are candidates."""
    passes: dict[Pass, PassProgress]
    """Every pass, also one that has done nothing yet."""
    skipped: dict[Pass, int]
    """How many results a pass has skipped and tries again."""


class GetRetentionProgress(Query[RetentionProgress], frozen=True):
    """How far retention has come."""


class RetentionView(msgspec.Struct, frozen=True):
    """What the passes work from: the state at one moment, which the tables show in full."""

    as_of: EventNo
    watermark: Height
    hot_until: EventNo
    warm_until: EventNo
    records_until: EventNo
    audit_until: EventNo
    skipped_hot: frozenset[EventNo]
    skipped_warm: frozenset[EventNo]
    head: Height


class GetRetentionView(Query[RetentionView], frozen=True):
    """Where the next run of a pass begins."""


class FilterUnreferenced(Query[tuple[OrphanFile, ...]], frozen=True):
    """RET-002: of files that no row as of an event needs, those that nothing has come to need since."""

    as_of: EventNo
    orphans: tuple[OrphanFile, ...]


class IsWarmDeletePending(Query[bool], frozen=True):
    """Whether an event has allowed to delete these bytes and no event has confirmed it yet."""

    digest: Digest


def _get_retention_progress(state: State, _: GetRetentionProgress) -> RetentionProgress:
    passes = {each: state.retention_progress.get(each) or PassProgress() for each in Pass}
    return RetentionProgress(
        retention_watermark(state),
        {each: msgspec.structs.replace(progress) for each, progress in passes.items()},
        {Pass.HOT: len(state.skipped_hot), Pass.WARM: len(state.skipped_warm)},
    )


def _get_retention_view(state: State, _: GetRetentionView) -> RetentionView:
    return RetentionView(
        as_of=state.last_event,
        watermark=retention_watermark(state),
        hot_until=pass_position(state, Pass.HOT),
        warm_until=pass_position(state, Pass.WARM),
        records_until=pass_position(state, Pass.RECORDS),
        audit_until=pass_position(state, Pass.AUDIT),
        skipped_hot=frozenset(state.skipped_hot),
        skipped_warm=frozenset(state.skipped_warm),
        head=state.chain.head.height,
    )


def _filter_unreferenced(state: State, query: FilterUnreferenced) -> tuple[OrphanFile, ...]:
    return unreferenced(state, query.as_of, query.orphans)


def _is_warm_delete_pending(state: State, query: IsWarmDeletePending) -> bool:
    return query.digest in state.warm_deletes_pending


QUERIES: Final = {
    GetRetentionProgress: _get_retention_progress,
    GetRetentionView: _get_retention_view,
    FilterUnreferenced: _filter_unreferenced,
    IsWarmDeletePending: _is_warm_delete_pending,
}
