"""Metrics of retention (OBS-001): what left each tier, how many bytes each tier holds, how long passes take."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.api.http.metrics.families import MS, counter_family, labelled_histograms
from holdfast.api.node_access import NodeAccess
from holdfast.core.retention.model import Pass
from holdfast.engine.queries.retention import GetRetentionProgress


def retention_metrics(access: NodeAccess) -> Iterator[Metric]:
    """What left a tier is counted in the journal; the sizes of the tiers are known to the owner alone."""
    passes = access.source.query_undurable(GetRetentionProgress()).passes
    results = [((each.value,), passes[each].results) for each in Pass if each is not Pass.ORPHANS]
    yield counter_family("cap_results_pruned", "Results that left a tier.", ("tier",), results)
    orphans = passes[Pass.ORPHANS]
    help_text = "Warm files deleted that no result refers to."
    yield CounterMetricFamily("cap_results_orphans", help_text, value=orphans.results)
    yield CounterMetricFamily("cap_results_orphan_bytes", "Bytes of those files.", value=orphans.bytes)
    warm = passes[Pass.WARM]
    help_text = "Bytes of results that only the archive holds."
    yield GaugeMetricFamily("cap_results_bytes_cold", help_text, value=warm.bytes - warm.lost_bytes)
    yield from _scrub_metrics(access)
    collector = access.collector
    if collector is None:
        return
    help_text = "Bytes of results in the hot store."
    yield GaugeMetricFamily("cap_results_bytes_hot", help_text, value=collector.bytes_hot)
    help_text = "Bytes of results in the warm store."
    yield GaugeMetricFamily("cap_results_bytes_warm", help_text, value=collector.bytes_warm)
    help_text = "Duration of one run of a pass."
    yield labelled_histograms("cap_results_gc_seconds", help_text, "pass", collector.durations, scale=MS)


def _scrub_metrics(access: NodeAccess) -> Iterator[Metric]:
    """TIER-001: what the scrubber of the owner has read and found."""
    scrubber = access.scrubber
    if scrubber is None:
        return
    help_text = "Outputs on the disk that are damaged and could not be repaired."
    yield GaugeMetricFamily("holdfast_warm_damaged", help_text, value=len(scrubber.progress.damaged))
    help_text = "Damaged outputs that were written anew from the hot store."
    yield CounterMetricFamily("holdfast_warm_repaired", help_text, value=scrubber.repaired)
    help_text = "Bytes of outputs on the disk that were read again."
    yield CounterMetricFamily("holdfast_warm_scrubbed_bytes", help_text, value=scrubber.bytes_read)
    help_text = "When all outputs on the disk had last been read again; 0 before that."
    yield GaugeMetricFamily("holdfast_warm_scrub_passed_seconds", help_text, value=scrubber.progress.passed_ms / MS)
