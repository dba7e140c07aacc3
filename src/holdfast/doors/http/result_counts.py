"""Results as Prometheus reads them (OBS-001): the names that the source prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from holdfast.core.values import Kind
from holdfast.doors.desk import Desk

LOOKUPS: Final = ("cap.getResult", "cap.readResult")
"""What counts as looking a result up."""


class Spread(Protocol):
    """How long something took, sorted into buckets of seconds."""

    sum_s: float

    def buckets(self) -> list[tuple[str, float]]: ...


def result_families(desk: Desk, lookups: Sequence[Spread]) -> Iterator[Metric]:
    """Counters start again with the process that folds; how long lookups took is this door's own."""
    counts = desk.source.state.counts
    for what, says in (
        ("resolved", "Results that a block resolved; again after a reorg counts again."),
        ("consumed", "Results that were used."),
    ):
        family = CounterMetricFamily(f"cap_results_{what}", says, labels=["kind"])
        for kind in Kind:
            family.add_metric([kind.value], counts.get((what, kind.value), 0))
        yield family
    undone = counts.get(("rolled_back", ""), 0)
    yield CounterMetricFamily("cap_results_reorg_rollbacks", "Results whose block was taken back.", value=undone)
    yield _latency(lookups)


def _latency(lookups: Sequence[Spread]) -> Metric:
    """The same buckets in milliseconds, over all ways to look a result up."""
    marks: dict[str, float] = {}
    for spread in lookups:
        for mark, count in spread.buckets():
            marks[mark] = marks.get(mark, 0.0) + count
    buckets = [(mark if mark == "+Inf" else f"{float(mark) * 1000:g}", count) for mark, count in marks.items()]
    says = "Milliseconds that it took to look a result up."
    sum_ms = sum(spread.sum_s for spread in lookups) * 1000
    return HistogramMetricFamily("cap_results_lookup_latency_ms", says, buckets or [("+Inf", 0.0)], sum_ms)
