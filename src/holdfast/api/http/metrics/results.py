"""Metrics of results (OBS-001), under the names that the source prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from holdfast.api.http.metrics.families import LATENCY_BOUNDS_US, MS, US, counter_family, histogram_family
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.values import Kind
from holdfast.engine.queries.metrics import GetResultCounts
from holdfast.system.histogram import Histogram

LOOKUPS: Final = ("cap.getResult", "cap.readResult")
"""The methods that look a result up."""


def result_metrics(access: NodeAccess, lookups_us: Sequence[Histogram]) -> Iterator[Metric]:
    """Counters begin again with the process. The latency of lookups is that of this server."""
    counts = access.source.query_undurable(GetResultCounts())
    for what, help_text in (
        ("resolved", "Results that a block resolved; again after a reorg counts again."),
        ("consumed", "Results that were consumed."),
    ):
        by_kind = [((kind.value,), counts.get((what, kind.value), 0)) for kind in Kind]
        yield counter_family(f"cap_results_{what}", help_text, ("kind",), by_kind)
    rolled_back = counts.get(("rolled_back", ""), 0)
    yield CounterMetricFamily("cap_results_reorg_rollbacks", "Results whose block was rolled back.", value=rolled_back)
    help_text = "Milliseconds to look a result up."
    yield histogram_family("cap_results_lookup_latency_ms", help_text, _merge(lookups_us), scale=US // MS)


def _merge(histograms: Sequence[Histogram]) -> Histogram:
    merged = Histogram(LATENCY_BOUNDS_US)
    for each in histograms:
        merged.counts = [one + other for one, other in zip(merged.counts, each.counts, strict=True)]
        merged.sum += each.sum
    return merged
