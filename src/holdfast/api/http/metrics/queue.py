"""Metrics of the queue (OBS-001): what waits and for how long, how leases end, what providers do.

Counters and histograms are kept as events are applied; gauges are what the state keeps anyway. Reading costs a step for
each provider and for each group of jobs of one shape, never one for each job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.api.http.metrics.families import (
    MS,
    NS,
    counter_family,
    gauge_family,
    histogram_family,
    labelled_histograms,
)
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.values import Kind
from holdfast.core.job.model import LIVE_STATES, JobState
from holdfast.core.provider.sla import Severity
from holdfast.engine import queries
from holdfast.engine.metrics.event_metrics import DECLINED, ENDED_WITHOUT_RESULT, OTHER
from holdfast.engine.queries.metrics import GetQueueMetrics, QueueMetricsView

_KINDS: Final = tuple(kind.value for kind in Kind)
_REASONS: Final = (*sorted(ENDED_WITHOUT_RESULT), DECLINED, OTHER)
_SEVERITIES: Final = tuple(severity.value for severity in Severity)
COUNTERS: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "jobs_admitted": ("admitted", "Jobs admitted.", "kind", _KINDS),
    "jobs_requeued": ("requeued", "Failed jobs requeued by an operator.", "kind", _KINDS),
    "leases_granted": ("given", "Leases granted.", "kind", _KINDS),
    "retries": ("retried", "Leases of jobs that had a lease before.", "kind", _KINDS),
    "leases_ended_without_result": ("lost", "Leases that ended without a result, by reason.", "reason", _REASONS),
    "lease_renewals": ("renewed", "Renewals, in time or late.", "when", ("in time", "late")),
    "completions_ignored": ("ignored", "Completions that came too late or a second time.", "", ("",)),
    "proofs_refused": ("refused", "Proofs refused.", "", ("",)),
    "slashes": ("slashed", "Slashes, by severity.", "severity", _SEVERITIES),
    "slashed_amount": ("penalty", "Stake slashed, by severity.", "severity", _SEVERITIES),
    "heartbeats_missed": ("missed", "Heartbeats missed.", "", ("",)),
    "match_starvation_picks": ("guarded", "Jobs leased because they were the oldest.", "", ("",)),
}
"""By metric: the key of the count, the help text, the label, and all values of the label."""


def queue_metrics(access: NodeAccess, now_ms: int) -> Iterator[Metric]:
    """All metrics of jobs, leases, providers and matching."""
    view = access.source.query_undurable(GetQueueMetrics())
    yield from _gauges(view, now_ms)
    yield from _providers(view)
    metrics = view.metrics
    for name, (key, help_text, label, values) in COUNTERS.items():
        counts = [((value,) if label else (), metrics.counts.get((key, value), 0)) for value in values]
        yield counter_family(f"holdfast_{name}", help_text, (label,) if label else (), counts)
    states = [state.value for state in JobState if state not in LIVE_STATES]
    ended = [((state, kind), metrics.counts.get((state, kind), 0)) for state in states for kind in _KINDS]
    yield counter_family("holdfast_jobs_ended", "Jobs that ended, by state.", ("state", "kind"), ended)
    for name, help_text, by_kind in (
        ("holdfast_job_wait_seconds", "From a job's admission to its first lease.", metrics.wait_ms),
        ("holdfast_job_work_seconds", "From a lease to the verdict that accepted its result.", metrics.work_ms),
    ):
        histograms = {kind.value: histogram for kind, histogram in by_kind.items()}
        yield labelled_histograms(name, help_text, "kind", histograms, scale=MS)
    help_text = "Time to decide a tick that granted leases."
    yield histogram_family("holdfast_match_seconds", help_text, metrics.tick_ns, scale=NS)
    yield histogram_family("holdfast_match_batch_jobs", "Leases granted by such a tick.", metrics.tick_jobs)


def dead_letter_metric(count: int) -> Metric:
    """The count comes from the tables, so the caller reads it."""
    help_text = f"Jobs that failed too often and wait for an operator, counted up to {queries.PAGE_MAX}."
    return GaugeMetricFamily("holdfast_dead_letters", help_text, value=count)


def _gauges(view: QueueMetricsView, now_ms: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("holdfast_queue_depth", "Jobs that wait or are leased.", value=view.depth)
    waiting = ((kind.value, view.waiting[kind]) for kind in Kind)
    help_text = "Jobs that wait, including those that wait for a retry."
    yield gauge_family("holdfast_queue_waiting", help_text, "kind", waiting)
    oldest_ms = view.oldest_ms
    ages = ((kind.value, max(0, now_ms - oldest_ms[kind]) / MS if kind in oldest_ms else 0) for kind in Kind)
    help_text = "Age of the oldest ready job, 0 where there is none."
    yield gauge_family("holdfast_queue_oldest_seconds", help_text, "kind", ages)
    paused = ((kind, kind in view.paused) for kind in _KINDS)
    yield gauge_family("holdfast_queue_paused", "1 while a kind is paused.", "kind", paused)
    yield GaugeMetricFamily("holdfast_leases_active", "Live leases.", value=view.leases)


def _providers(view: QueueMetricsView) -> Iterator[Metric]:
    counts = ((status.value, count) for status, count in view.providers.items())
    yield gauge_family("holdfast_providers", "Providers, by status.", "status", counts)
    health = view.health_ppm
    ranks = (("min", 0), ("p10", len(health) // 10), ("p50", len(health) // 2))
    values = ((name, health[rank]) for name, rank in ranks if health)
    help_text = "Health of providers that have not retired: the lowest, the 10th percentile, the median."
    yield gauge_family("holdfast_provider_health_ppm", help_text, "at", values)
