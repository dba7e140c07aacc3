"""What the gateway counts (OBS-001), in a registry of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.api.http.metrics.families import LATENCY_BOUNDS_US, US, counter_family, labelled_histograms
from holdfast.system.histogram import Histogram


class GatewayMetrics(Collector):
    """To count is to add to a dictionary; families are made when the page is read."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.disconnected: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        """By kind: signed, raw, private."""
        self.faults: Counter[str] = Counter()
        """Damage and failures: integrity, index, store."""
        self.bytes_in = self.bytes_out = 0
        self.latencies_us: dict[str, Histogram] = {}
        self.gauges: dict[str, Callable[[], float]] = {}
        self.totals: tuple[int, int] = (0, 0)
        """Items and bytes, as the index had them when the page was last asked for."""
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, str(status)] += 1
        if (latencies := self.latencies_us.get(route)) is None:
            latencies = self.latencies_us[route] = Histogram(LATENCY_BOUNDS_US)
        latencies.add(round(seconds * US))

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        requests = sorted(self.requests.items())
        yield counter_family("gateway_requests", "Requests by route and status.", ("route", "status"), requests)
        for name, help_text, label, counts in (
            ("gateway_refusals", "Requests refused by a limit.", "reason", self.refusals),
            ("gateway_clients_disconnected", "Clients disconnected, by reason.", "reason", self.disconnected),
            ("gateway_uploads", "Items stored, by kind.", "kind", self.uploads),
            ("gateway_faults", "Damaged or unavailable parts, by part.", "part", self.faults),
        ):
            yield counter_family(name, help_text, (label,), [((key,), count) for key, count in sorted(counts.items())])
        yield counter_family("gateway_received_bytes", "Bytes of uploads.", (), [((), self.bytes_in)])
        yield counter_family("gateway_sent_bytes", "Bytes of items served.", (), [((), self.bytes_out)])
        yield labelled_histograms("gateway_request_seconds", "Time to an answer.", "route", self.latencies_us, scale=US)
        yield GaugeMetricFamily("gateway_items", "Items stored.", value=float(self.totals[0]))
        yield GaugeMetricFamily("gateway_item_bytes", "Bytes of the items stored.", value=float(self.totals[1]))
        for name, read in sorted(self.gauges.items()):
            yield GaugeMetricFamily(f"gateway_{name}", name.replace("_", " ").capitalize() + ".", value=float(read()))
