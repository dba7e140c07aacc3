"""How it goes (OBS-001): what was asked and how it ended, who is here, how the engine stands; as Prometheus reads it.

Counting is a dictionary's work, so that it costs a request next to nothing; the families are made when somebody looks.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.doors.desk import Desk
from holdfast.doors.http.evidence_counts import evidence_families
from holdfast.doors.http.queue_counts import dead_letters, queue_families
from holdfast.doors.http.result_counts import LOOKUPS, result_families
from holdfast.doors.http.retention_counts import retention_families
from holdfast.ports import Clock

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_MARKS: Final = [*map(str, SECONDS), "+Inf"]


class Spread:
    """How long something took, sorted into buckets."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts, self.sum_s = [0] * len(_MARKS), 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        return [(mark, float(count)) for mark, count in zip(_MARKS, accumulate(self.counts), strict=True)]


class Tally(Collector):
    """One door's counts, in a registry of their own."""

    def __init__(self, desk: Desk, clock: Clock) -> None:
        self._desk, self._clock = desk, clock
        self.requests: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.took: dict[str, Spread] = {}
        self.running = 0
        self.connections: Callable[[], int] = int
        self.subscribers: Callable[[], int] = int
        self.dead_letters: int | None = None
        """As the tables had it when somebody last looked; None where they did not answer."""
        self._pauses, self._pause_began = Spread(), 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def open(self) -> None:
        gc.callbacks.append(self._collecting)

    def close(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def asked(self, method: str, outcome: str, seconds: float) -> None:
        self.requests[method, outcome] += 1
        if (spread := self.took.get(method)) is None:
            spread = self.took[method] = Spread()
        spread.add(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield _counted("holdfast_requests", "Requests by method and outcome.", ("method", "outcome"), self.requests)
        yield _counted("holdfast_refusals", "What the door refused before it was a request.", ("name",), self.refusals)
        yield _counted("holdfast_dropped", "Clients that were let go of, by the reason.", ("why",), self.dropped)
        took = HistogramMetricFamily("holdfast_request_seconds", "Time to an answer.", labels=["method"])
        for method, spread in self.took.items():
            took.add_metric([method], spread.buckets(), spread.sum_s)
        yield took
        yield HistogramMetricFamily(
            "holdfast_collector_pause_seconds",
            "Pauses of Python's garbage collector.",
            self._pauses.buckets(),
            self._pauses.sum_s,
        )
        yield from self._gauges()
        now_ms = max(self._clock.wall_ms(), self._desk.source.standing().tip.time_ms)
        yield from queue_families(self._desk, now_ms)
        if self.dead_letters is not None:
            yield dead_letters(self.dead_letters)
        yield from result_families(self._desk, [self.took[name] for name in LOOKUPS if name in self.took])
        yield from evidence_families(self._desk)
        yield from retention_families(self._desk)

    def _gauges(self) -> Iterator[Metric]:
        standing = self._desk.source.standing()
        tip = standing.tip
        for name, says, value in (
            ("holdfast_requests_running", "Requests that wait for their answer.", self.running),
            ("holdfast_connections", "Open connections.", self.connections()),
            ("holdfast_subscribers", "Open streams of events.", self.subscribers()),
            ("holdfast_owner", "1 where this node decides, 0 where it follows.", standing.role == "owner"),
            ("holdfast_journal_batch", "Number of the last durable batch.", tip.number),
            ("holdfast_journal_event", "Number of the last durable event.", tip.last),
            ("holdfast_journal_epoch", "How often ownership was taken.", tip.epoch),
            ("holdfast_journal_time_ms", "Time of the last durable batch.", tip.time_ms),
            ("holdfast_tables_lag_events", "Events that the tables do not show yet.", tip.last - standing.tables_as_of),
        ):
            yield GaugeMetricFamily(name, says, value=float(value))

    def _collecting(self, phase: str, _: Mapping[str, Any]) -> None:
        if phase == "start":
            self._pause_began = time.perf_counter()
        else:
            self._pauses.add(time.perf_counter() - self._pause_began)


def _counted(name: str, says: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, says, labels=labels)
    for key, count in sorted(counts.items()):
        family.add_metric(list(key) if isinstance(key, tuple) else [key], count)
    return family
