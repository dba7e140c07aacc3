"""Retention as Prometheus reads it (OBS-001): what was let go by tier, what rests where, how long the passes take."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.core.retention import Pass
from holdfast.core.retention.books import Progress
from holdfast.doors.desk import Desk


def retention_families(desk: Desk) -> Iterator[Metric]:
    """What was let go is counted in the journal; what rests here only the owner knows."""
    passes = desk.source.state.passes
    family = CounterMetricFamily("cap_results_pruned", "Results that left a tier.", labels=["tier"])
    for each in Pass:
        if each is not Pass.STRAY:  # which never were results, or are none any more
            family.add_metric([each.value], (passes.get(each) or Progress()).results)
    yield family
    strays = passes.get(Pass.STRAY) or Progress()
    yield CounterMetricFamily("cap_results_strays", "Files on the disk let go that nobody named.", value=strays.results)
    yield CounterMetricFamily("cap_results_stray_bytes", "And their bytes.", value=strays.bytes)
    warm = passes.get(Pass.WARM) or Progress()
    says = "Bytes of results that the archive alone holds."
    yield GaugeMetricFamily("cap_results_bytes_cold", says, value=warm.bytes - warm.lost_bytes)
    collector = desk.collector
    if collector is None:
        return
    yield GaugeMetricFamily("cap_results_bytes_hot", "Bytes of results in the store.", value=collector.bytes_hot)
    yield GaugeMetricFamily("cap_results_bytes_warm", "Bytes of results on the disk.", value=collector.bytes_warm)
    took = HistogramMetricFamily("cap_results_gc_seconds", "How long one run of a pass took.", labels=["pass"])
    for name, (buckets, sum_s) in collector.durations().items():
        took.add_metric([name], [(mark, float(count)) for mark, count in buckets], sum_s)
    yield took
