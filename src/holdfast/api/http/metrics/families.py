"""From counts and histograms to the families that Prometheus reads (OBS-001)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.system.histogram import Histogram

MS, US, NS = 1_000, 1_000_000, 1_000_000_000
"""Units of a histogram in one second."""
LATENCY_BOUNDS_US: Final = (
    *(500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    *(100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000),
)


def counter_family(
    name: str, help_text: str, labels: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    """Counters by the values of their labels."""
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, count in counts:
        family.add_metric(values, count)
    return family


def gauge_family(name: str, help_text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """Gauges by the value of one label."""
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value, measured in values:
        family.add_metric([value], float(measured))
    return family


def histogram_family(name: str, help_text: str, histogram: Histogram, scale: int = 1) -> Metric:
    """One histogram; its bounds and sum are divided by `scale`."""
    return HistogramMetricFamily(name, help_text, *_buckets_and_sum(histogram, scale))


def labelled_histograms(
    name: str, help_text: str, label: str, histograms: Mapping[str, Histogram], scale: int
) -> Metric:
    """Histograms by the value of one label."""
    family = HistogramMetricFamily(name, help_text, labels=[label])
    for value, histogram in histograms.items():
        family.add_metric([value], *_buckets_and_sum(histogram, scale))
    return family


def _buckets_and_sum(histogram: Histogram, scale: int) -> tuple[list[tuple[str, float]], float]:
    return [(bound, float(count)) for bound, count in histogram.cumulative(scale)], histogram.sum / scale
