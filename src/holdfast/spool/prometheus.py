"""The metrics of open spools for Prometheus (OBS-001).

It is not imported by `holdfast.spool`, which needs no library for it. Register the collector where you serve metrics:

    REGISTRY.register(SpoolCollector(lambda: [spool]))

or let it have a port of its own: `serve_metrics(lambda: [spool], 9101)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.spool.metrics import SpoolMetrics
from holdfast.spool.spool import Spool
from holdfast.system.histogram import Histogram

PREFIX: Final = "holdfast_spool_"
LABELS: Final = ("channel", "session")
GAUGES: Final = {
    "spooled_sequence": "The last record that is durable.",
    "acked_sequence": "The last record that the receiver has.",
    "waiting_records": "Records that are emitted and not spooled yet.",
    "unacked_records": "Records that are spooled and not acked.",
    "oldest_unacked_age_ms": "Age of the oldest record that is not acked.",
    "session_bytes": "Bytes in the files of the session.",
    "channel_bytes": "Bytes in the folder of the channel.",
    "channel_bytes_max": "The cap of that folder.",
    "disk_free_bytes": "Bytes that the disk had left when the folder was measured.",
    "is_damaged": "1 where records are known to be missing or damaged: nothing is written to the session.",
}
COUNTERS: Final = {
    "commits": "Commits.",
    "replays": "Replays that were begun.",
    "replayed_records": "Records that were read for sending.",
    "quarantined_records": "Lines that recovery has moved to quarantine.",
    "compactions": "Files that were compacted.",
    "failures": "Commits and maintenance that the disk has failed.",
}
HISTOGRAMS: Final = {
    "commit_records": "Records in a commit.",
    "sync_us": "How long a write with its sync took, in microseconds.",
}
ListSpools = Callable[[], Iterable[Spool]]


class SpoolCollector(Collector):
    """Reads the open spools whenever it is scraped; it reads no disk."""

    def __init__(self, list_spools: ListSpools) -> None:
        self._list_spools = list_spools

    def collect(self) -> Iterator[Metric]:
        readings = [
            ([spool.paths.channel, spool.paths.session], spool.metrics(), spool) for spool in self._list_spools()
        ]
        for name, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=LABELS)
            for labels, reading, spool in readings:
                gauge.add_metric(labels, bool(spool.damage) if name == "is_damaged" else getattr(reading, name))
            yield gauge
        for name, text in COUNTERS.items():
            counter = CounterMetricFamily(f"{PREFIX}{name}", text, labels=LABELS)
            for labels, reading, _ in readings:
                counter.add_metric(labels, getattr(reading, name))
            yield counter
        yield _refusals([(labels, reading) for labels, reading, _ in readings])
        for name, text in HISTOGRAMS.items():
            family = HistogramMetricFamily(f"{PREFIX}{name}", text, labels=LABELS)
            for labels, reading, _ in readings:
                sizes: Histogram = getattr(reading, name)
                family.add_metric(labels, list(sizes.cumulative()), sizes.sum)
            yield family


def _refusals(readings: list[tuple[list[str], SpoolMetrics]]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}refused", "Emits that were refused, by name.", labels=(*LABELS, "name"))
    for labels, reading in readings:
        for name, count in sorted(reading.refusals.items()):
            family.add_metric([*labels, name], count)
    return family


def serve_metrics(list_spools: ListSpools, port: int) -> Any:
    """Serve them on a loopback port, in a thread; `shutdown()` of what is returned ends it."""
    registry = CollectorRegistry()
    registry.register(SpoolCollector(list_spools))
    server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    return server
