"""Metrics of blobs and their archive (OBS-001), under the names that both sources print."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.api.http.metrics.families import MS, counter_family, histogram_family
from holdfast.api.node_access import NodeAccess
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.engine.queries.blobs import GetArchiveProgress


def archive_metrics(access: NodeAccess) -> Iterator[Metric]:
    """What is archived and pruned is counted in the journal; uploads are known to the owner alone."""
    progress = access.source.query_undurable(GetArchiveProgress())
    yield CounterMetricFamily("blob_archived", "Blobs that an archive holds.", value=progress.archived)
    yield CounterMetricFamily("blob_pruned", "Blobs whose bytes were deleted here.", value=progress.pruned)
    for name, help_text, value in (
        ("blob_archival_lag_blocks", "Final blocks since the last archived one.", progress.lag_blocks),
        ("blob_pruner_backlog_height", "The lowest height whose bytes are here.", progress.pruner_backlog_height),
        ("archiver_backlog_height", "The lowest height with a blob in no archive.", progress.backlog_height),
        ("archiver_queue_len", "Blobs that wait for an archive.", progress.pending),
        ("archiver_stalled", "Blobs of heights at which an upload failed too often.", progress.stalled),
        ("archiver_archived_bytes", "Bytes of blobs that an archive holds.", progress.archived * BLOB_BYTES),
        (
            "archiver_old_key_heights",
            "Heights that wait for a key that has left the validators.",
            progress.old_key_heights,
        ),
    ):
        yield GaugeMetricFamily(name, help_text, value=value)
    served = access.served
    yield CounterMetricFamily("archiver_served", "Blobs that were sent to clients.", value=served.blobs)
    help_text = "Blobs that are not here any more and were answered with their locators."
    yield CounterMetricFamily("archiver_served_archived", help_text, value=served.archived)
    if access.archive is None:
        return
    counts = access.archive.metrics
    results = [(("ok",), counts.attempts_good), (("err",), counts.attempts_failed)]
    yield counter_family("blob_archival_attempts", "Attempts to archive a blob.", ("result",), results)
    for name, help_text, value in (
        ("archiver_jobs_success", "Heights whose blobs were all archived.", counts.heights_good),
        ("archiver_jobs_failure", "Runs over a height of which a blob could not be archived.", counts.heights_failed),
        ("archiver_upload_success", "Uploads that succeeded.", counts.attempts_good),
        ("archiver_upload_failures", "Uploads that failed.", counts.attempts_failed),
        ("archiver_upload_bytes", "Bytes uploaded.", counts.uploaded_bytes),
        ("archiver_receipt_mismatch", "Uploads that were not read back as they were sent.", counts.receipts_mismatched),
        ("archiver_pruned", "Blobs whose bytes this process has deleted.", counts.pruned),
        ("blob_prune_failures", "Bytes that were gone already, or not what was stored.", counts.prune_failures),
        ("archiver_bytes_lost", "Blobs that neither the archive nor any node has.", access.archive.count_lost()),
        ("archiver_notice_conflicts", "Signed notices that are not so.", access.archive.sync_metrics.conflicts),
    ):
        yield CounterMetricFamily(name, help_text, value=value)
    for name, help_text, histogram in (
        ("archiver_upload_duration_seconds", "From a height's first upload to its last record.", counts.height_ms),
        ("archiver_upload_blob_duration_seconds", "Of one blob, with reading it back.", counts.blob_ms),
        (
            "archiver_notice_propagation_seconds",
            "From sending a notice first to each validator's confirmation.",
            access.archive.sync_metrics.propagation_ms,
        ),
    ):
        yield histogram_family(name, help_text, histogram, scale=MS)
    failures = (counts.notices_refused + access.archive.sync_metrics.failures).items()
    refused = [((name,), count) for name, count in sorted(failures)]
    yield counter_family("sync_failures", "Notices and confirmations that were refused.", ("reason",), refused)
    help_text = "Bytes that this process has deleted."
    yield GaugeMetricFamily("archiver_pruned_bytes", help_text, value=counts.pruned_bytes)
