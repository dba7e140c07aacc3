"""Metrics of the HTTP server and of the engine (OBS-001), and the page that Prometheus reads.

To count is to add to a dictionary, so that it costs a request next to nothing. Families are made when the page is read.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.api.http.metrics.archive import archive_metrics
from holdfast.api.http.metrics.evidence import connection_metrics, evidence_metrics
from holdfast.api.http.metrics.families import (
    LATENCY_BOUNDS_US,
    US,
    counter_family,
    histogram_family,
    labelled_histograms,
)
from holdfast.api.http.metrics.ownership import ownership_metrics
from holdfast.api.http.metrics.queue import dead_letter_metric, queue_metrics
from holdfast.api.http.metrics.results import LOOKUPS, result_metrics
from holdfast.api.http.metrics.retention import retention_metrics
from holdfast.api.node_access import NodeAccess
from holdfast.ports import Clock
from holdfast.system.histogram import Histogram

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


class HttpMetrics(Collector):
    """The counts of one server, in a registry of their own."""

    def __init__(self, access: NodeAccess, clock: Clock) -> None:
        self._access, self._clock = access, clock
        self.requests: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.disconnected: Counter[str] = Counter()
        self.latencies_us: dict[str, Histogram] = {}
        self.running = 0
        self.connections: Callable[[], int] = int
        self.subscribers: Callable[[], int] = int
        self.dead_letters: int | None = None
        """As the tables had it when the page was last read; None where they did not answer."""
        self._gc_pauses_us, self._gc_began = Histogram(LATENCY_BOUNDS_US), 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def open(self) -> None:
        gc.callbacks.append(self._on_gc)

    def close(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def count_request(self, method: str, outcome: str, seconds: float) -> None:
        self.requests[method, outcome] += 1
        if (latencies := self.latencies_us.get(method)) is None:
            latencies = self.latencies_us[method] = Histogram(LATENCY_BOUNDS_US)
        latencies.add(round(seconds * US))

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._gauges()
        now_ms = max(self._clock.wall_ms(), self._access.source.replication_status().tip.time_ms)
        yield from queue_metrics(self._access, now_ms)
        if self.dead_letters is not None:
            yield dead_letter_metric(self.dead_letters)
        lookups = [self.latencies_us[name] for name in LOOKUPS if name in self.latencies_us]
        yield from result_metrics(self._access, lookups)
        yield from evidence_metrics(self._access)
        yield from connection_metrics(self._access)
        yield from retention_metrics(self._access)
        yield from ownership_metrics(self._access)
        yield from archive_metrics(self._access)

    def _requests(self) -> Iterator[Metric]:
        requests = sorted(self.requests.items())
        yield counter_family("holdfast_requests", "Requests by method and outcome.", ("method", "outcome"), requests)
        for name, help_text, label, counts in (
            ("holdfast_refusals", "Refusals before a request was read.", "name", self.refusals),
            ("holdfast_clients_disconnected", "Clients disconnected, by reason.", "reason", self.disconnected),
        ):
            yield counter_family(name, help_text, (label,), [((key,), count) for key, count in sorted(counts.items())])
        yield labelled_histograms(
            "holdfast_request_seconds", "Time to an answer.", "method", self.latencies_us, scale=US
        )
        help_text = "Pauses of Python's garbage collector."
        yield histogram_family("holdfast_python_gc_pause_seconds", help_text, self._gc_pauses_us, scale=US)

    def _gauges(self) -> Iterator[Metric]:
        replication = self._access.source.replication_status()
        head, lag = replication.tip, replication.tip.last - replication.tables_as_of
        for name, help_text, value in (
            ("holdfast_requests_running", "Requests that wait for their answer.", self.running),
            ("holdfast_connections", "Open connections.", self.connections()),
            ("holdfast_subscribers", "Open subscriptions to events.", self.subscribers()),
            ("holdfast_owner", "1 on the owner of the journal, 0 on a follower.", replication.role == "owner"),
            ("holdfast_journal_batch", "Number of the last durable batch.", head.number),
            ("holdfast_journal_event", "Number of the last durable event.", head.last),
            ("holdfast_journal_term", "How often ownership of the journal was taken.", head.term),
            ("holdfast_journal_time_ms", "Time of the last durable batch.", head.time_ms),
            ("holdfast_tables_lag_events", "Events that the tables do not show yet.", lag),
        ):
            yield GaugeMetricFamily(name, help_text, value=float(value))

    def _on_gc(self, phase: str, _: Mapping[str, Any]) -> None:
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self._gc_pauses_us.add(round((time.perf_counter() - self._gc_began) * US))
