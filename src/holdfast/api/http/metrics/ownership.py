"""Metrics of ownership, time and scrubbing (OBS-001): silent owner, clock that is not believed, verified batches."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.api.node_access import NodeAccess


def ownership_metrics(access: NodeAccess) -> Iterator[Metric]:
    """Silence is known to a standby, the rest to the owner."""
    help_text = "How long the owner has shown no heartbeat to this standby."
    yield GaugeMetricFamily("holdfast_owner_silent_seconds", help_text, value=access.owner_silent_ms() / 1_000)
    help_text = "1 while the machine's clock is not believed: no job is admitted, nothing expires."
    yield GaugeMetricFamily("holdfast_clock_not_believed", help_text, value=access.clock_fault() is not None)
    if (scrub := access.journal_scrubber) is None:
        return
    help_text = "Batches whose place in the hash chain was verified."
    yield CounterMetricFamily("holdfast_scrub_batches", help_text, value=scrub.batches)
    help_text = "The batch up to which the chain was verified in the running or the last pass."
    yield GaugeMetricFamily("holdfast_scrub_verified_batch", help_text, value=scrub.verified_until)
    help_text = "When the last whole pass ended, 0 before the first."
    yield GaugeMetricFamily("holdfast_scrub_finished_ms", help_text, value=scrub.finished_ms)
    help_text = "Damaged or missing segments of the archive that the last pass found."
    yield GaugeMetricFamily("holdfast_scrub_archive_faults", help_text, value=scrub.archive_faults)
