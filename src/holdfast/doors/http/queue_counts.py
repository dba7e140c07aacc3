"""The queue as Prometheus reads it (OBS-001): what waits, how long it waits and works, what is lost and why.

Counters and histograms come from the tally that is kept as events take effect; gauges from what the state keeps
anyway. Looking costs a step for each provider and for each group of jobs that ask for the same, never one for each job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.core.counting import DECLINED, LOST, OTHER
from holdfast.core.job.record import LIVE, JobState
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.provider.sla import Severity
from holdfast.core.state import State
from holdfast.core.tally import Spread
from holdfast.core.values import Kind
from holdfast.doors.desk import Desk

_KINDS: Final = tuple(kind.value for kind in Kind)
_REASONS: Final = (*sorted(LOST), DECLINED, OTHER)
_SEVERITIES: Final = tuple(severity.value for severity in Severity)
COUNTED: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "jobs_admitted": ("admitted", "Jobs that were taken in.", "kind", _KINDS),
    "jobs_requeued": ("requeued", "Jobs that had failed too often and were put back.", "kind", _KINDS),
    "leases_given": ("given", "Leases that were given.", "kind", _KINDS),
    "retries": ("retried", "Leases of jobs that had had one before.", "kind", _KINDS),
    "leases_lost": ("lost", "Leases that ended without a result, by the reason.", "reason", _REASONS),
    "lease_renewals": ("renewed", "Renewals, in time or late.", "when", ("in time", "late")),
    "completions_ignored": ("ignored", "Completions that came too late or a second time.", "", ("",)),
    "proofs_refused": ("refused", "Proofs that were not accepted.", "", ("",)),
    "slashes": ("slashed", "Slashes, by how grave they were.", "severity", _SEVERITIES),
    "slashed_amount": ("penalty", "Stake that was lost to them.", "severity", _SEVERITIES),
    "heartbeats_missed": ("missed", "Heartbeats that did not come.", "", ("",)),
    "match_guard_uses": ("guarded", "Jobs that had their turn as the oldest.", "", ("",)),
}
"""Metric, what of the tally it is, what it means, its label and all values of that."""
_MS, _NS = 1_000, 1_000_000_000


def queue_families(desk: Desk, now_ms: int) -> Iterator[Metric]:
    """Everything that is counted of jobs, leases, providers and matching."""
    state = desk.source.state
    yield from _gauges(state, now_ms)
    yield from _providers(state)
    tally = state.tally
    for name, (what, says, label, values) in COUNTED.items():
        family = CounterMetricFamily(f"holdfast_{name}", says, labels=[label] if label else [])
        for value in values:
            family.add_metric([value] if label else [], tally.counts.get((what, value), 0))
        yield family
    ended = CounterMetricFamily("holdfast_jobs_ended", "Jobs that ended, and how.", labels=["state", "kind"])
    for how in (each.value for each in JobState if each not in LIVE):
        for kind in _KINDS:
            ended.add_metric([how, kind], tally.counts.get((how, kind), 0))
    yield ended
    yield _by_kind("holdfast_job_wait_seconds", "From a job's admission to its first lease.", tally.waits)
    yield _by_kind("holdfast_job_work_seconds", "From a lease to the verdict that accepted its result.", tally.works)
    for name, says, spread, unit in (
        ("holdfast_match_seconds", "How long it took to decide a tick that gave something.", tally.ticks, _NS),
        ("holdfast_match_batch_jobs", "How many jobs such a tick gave.", tally.batches, 1),
    ):
        yield HistogramMetricFamily(name, says, *_told(spread, unit))


def dead_letters(count: int) -> Metric:
    """It comes from the tables, so whoever asks brings it."""
    says = "Jobs that failed too often and wait for an operator, counted up to 1000."
    return GaugeMetricFamily("holdfast_dead_letters", says, value=count)


def _gauges(state: State, now_ms: int) -> Iterator[Metric]:
    line = state.queue.line
    yield GaugeMetricFamily("holdfast_queue_depth", "Jobs that wait or are worked on.", value=state.queue.depth)
    yield _labelled(
        "holdfast_queue_waiting",
        "Jobs that wait, also those that wait for a retry.",
        "kind",
        ((kind.value, line.waiting.get(kind, 0)) for kind in Kind),
    )
    oldest = line.oldest_ms()
    yield _labelled(
        "holdfast_queue_oldest_seconds",
        "Age of the oldest job that could be given now, 0 where there is none.",
        "kind",
        ((kind.value, max(0, now_ms - oldest[kind]) / _MS if kind in oldest else 0) for kind in Kind),
    )
    says = "1 while jobs of a kind are given to nobody."
    yield _labelled("holdfast_queue_paused", says, "kind", ((kind, kind in state.paused) for kind in _KINDS))
    yield GaugeMetricFamily("holdfast_leases_active", "Leases that live.", value=len(state.leases.by_id))


def _providers(state: State) -> Iterator[Metric]:
    by_status = dict.fromkeys(ProviderStatus, 0)
    health = []
    for provider in state.providers.values():
        by_status[provider.status] += 1
        if provider.status is not ProviderStatus.RETIRED:
            health.append(provider.health_ppm)
    health.sort()
    told = ((status.value, count) for status, count in by_status.items())
    yield _labelled("holdfast_providers", "Providers by their status.", "status", told)
    says = "Health of the worst, of one in ten and of half the providers or worse; those who retired do not count."
    places = (("min", 0), ("p10", len(health) // 10), ("p50", len(health) // 2))
    yield _labelled("holdfast_provider_health_ppm", says, "at", ((name, health[at]) for name, at in places if health))


def _labelled(name: str, says: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, says, labels=[label])
    for value, measured in values:
        family.add_metric([value], float(measured))
    return family


def _by_kind(name: str, says: str, spreads: dict[Kind, Spread]) -> Metric:
    family = HistogramMetricFamily(name, says, labels=["kind"])
    for kind, spread in spreads.items():
        family.add_metric([kind.value], *_told(spread, _MS))
    return family


def _told(spread: Spread, unit: int) -> tuple[list[tuple[str, float]], float]:
    """Buckets and sum as Prometheus has them, in seconds or pieces."""
    marks = [*(str(mark / unit) for mark in spread.marks), "+Inf"]
    sums = accumulate(spread.counts)
    return [(mark, float(count)) for mark, count in zip(marks, sums, strict=True)], spread.sum / unit
