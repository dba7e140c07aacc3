"""Evidence metrics for Prometheus (OBS-001): counters and the lag over all streams, never one series per channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from holdfast.api.evidence.metrics import PERCENTILES
from holdfast.api.http.metrics.families import gauge_family, histogram_family
from holdfast.api.node_access import NodeAccess
from holdfast.engine.queries.evidence import CountDeadLetters

COUNTERS: Final = {
    "records": "Records stored.",
    "duplicates": "Records received again.",
    "gaps": "Batches that did not follow the watermark.",
    "conflicts": "Records that differ from the stored record of the same sequence.",
    "malformed": "Lines that are not records, now dead letters.",
    "invalid_requests": "Records with an invalid request, now dead letters.",
    "refused_requests": "Records with a valid request that the rules refused.",
    "streams": "Streams started.",
    "replays": "Streams whose sender had records that the node did not have.",
    "refused_streams": "Streams refused, or ended by a refusal.",
    "credit_stalls": "How often a sender waited for credit.",
}


def evidence_metrics(access: NodeAccess) -> Iterator[Metric]:
    """Empty where the node does not receive evidence."""
    metrics = access.evidence_metrics
    if metrics is None:
        return
    for name, help_text in COUNTERS.items():
        yield CounterMetricFamily(f"holdfast_evidence_{name}", help_text, value=getattr(metrics, name))
    help_text = "Records stored at a time."
    yield histogram_family("holdfast_evidence_batch_records", help_text, metrics.batch_sizes)
    yield GaugeMetricFamily("holdfast_evidence_open_streams", "Open streams.", value=metrics.open_stream_count)
    waiting = access.source.query_undurable(CountDeadLetters())
    yield GaugeMetricFamily("holdfast_evidence_dead_letters", "Dead letters that are not resolved.", value=waiting)
    lags = [(f"p{percent}", metrics.lag_percentile(percent)) for percent in PERCENTILES]
    lags.append(("max", max(metrics.lags(), default=0)))
    help_text = "Records that senders have beyond the acknowledged sequence."
    yield gauge_family("holdfast_evidence_lag_records", help_text, "at", lags)


def connection_metrics(access: NodeAccess) -> Iterator[Metric]:
    """SEC-002: of the front process of gRPC; empty where there is none."""
    if access.grpc_connections is None:
        return
    counts = msgspec.structs.asdict(access.grpc_connections())
    open_ = [(state, counts[state]) for state in ("silent", "forwarded", "proven")]
    yield gauge_family("holdfast_grpc_connections", "Open connections of gRPC.", "state", open_)
    refused = CounterMetricFamily("holdfast_grpc_connections_closed", "Closed by a limit.", labels=["reason"])
    for reason in ("full", "displaced", "late", "foreign", "upstream_failed"):
        refused.add_metric([reason], counts[reason])
    yield refused
