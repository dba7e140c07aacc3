"""Queries for whoever exports metrics (OBS-001): counts that the state keeps anyway, copied."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import Kind
from holdfast.core.provider.model import ProviderStatus
from holdfast.core.state import State
from holdfast.engine.metrics.event_metrics import metrics_of
from holdfast.engine.metrics.queue_metrics import QueueMetrics
from holdfast.engine.queries.query import Query
from holdfast.system.histogram import Histogram

_IGNORED: Final = ("ignored", "")
"""Completions that changed nothing: some are recorded as events, late ones are only counted."""


class QueueMetricsView(msgspec.Struct, frozen=True):
    """Gauges of the queue and of providers, and the counters and histograms since this process began."""

    depth: int
    leases: int
    waiting: dict[Kind, int]
    oldest_ms: dict[Kind, int]
    """When the oldest ready job of a kind was admitted."""
    paused: frozenset[str]
    providers: dict[ProviderStatus, int]
    health_ppm: list[int]
    """Of all providers that have not retired, the worst first."""
    metrics: QueueMetrics


class GetQueueMetrics(Query[QueueMetricsView], frozen=True):
    """Costs a step for each provider and for each group of equal jobs, never one for each job."""


class GetResultCounts(Query[dict[tuple[str, str], int]], frozen=True):
    """What happened to results, by what it was and by kind, since this process began."""


def _get_queue_metrics(state: State, _: GetQueueMetrics) -> QueueMetricsView:
    by_status = dict.fromkeys(ProviderStatus, 0)
    health = []
    for provider in state.providers.values():
        by_status[provider.status] += 1
        if provider.status is not ProviderStatus.RETIRED:
            health.append(provider.health_ppm)
    ready = state.queue.ready_queue
    return QueueMetricsView(
        depth=state.queue.depth,
        leases=len(state.leases.by_id),
        waiting={kind: ready.waiting.get(kind, 0) for kind in Kind},
        oldest_ms=ready.oldest_ms(),
        paused=frozenset(state.paused),
        providers=by_status,
        health_ppm=sorted(health),
        metrics=_copy_metrics(state),
    )


def _copy_metrics(state: State) -> QueueMetrics:
    metrics, late = metrics_of(state), state.result_counts.get(_IGNORED, 0)
    counts = metrics.counts | {_IGNORED: metrics.counts.get(_IGNORED, 0) + late}
    return QueueMetrics(
        counts=counts,
        wait_ms={kind: _copy_histogram(each) for kind, each in metrics.wait_ms.items()},
        work_ms={kind: _copy_histogram(each) for kind, each in metrics.work_ms.items()},
        tick_ns=_copy_histogram(metrics.tick_ns),
        tick_jobs=_copy_histogram(metrics.tick_jobs),
    )


def _copy_histogram(histogram: Histogram) -> Histogram:
    return Histogram(histogram.bounds, list(histogram.counts), histogram.sum)


def _get_result_counts(state: State, _: GetResultCounts) -> dict[tuple[str, str], int]:
    return dict(state.result_counts)


QUERIES: Final = {
    GetQueueMetrics: _get_queue_metrics,
    GetResultCounts: _get_result_counts,
}
