"""Evidence as Prometheus reads it (OBS-001): counts, and lags of all streams together, never one number a channel."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from holdfast.doors.desk import Desk
from holdfast.doors.witness import PERCENTILES, SIZES

COUNTED: Final = {
    "records": "Records that were stored.",
    "duplicates": "Records that came again.",
    "gaps": "Records that did not follow the mark.",
    "conflicts": "Other records under a known sequence.",
    "poison": "Lines that were no records, in dead letters.",
    "unheard": "Records that asked in a way that cannot be heard, in dead letters.",
    "refused": "Records that asked for what the rules did not allow any more.",
    "streams": "Streams that began.",
    "replays": "Streams whose sender had records that the node did not have.",
    "turned_away": "Streams that were refused.",
    "credit_stalls": "How often a sender had to wait for room.",
}
_MARKS: Final = [*map(str, map(float, SIZES)), "+Inf"]


def evidence_families(desk: Desk) -> Iterator[Metric]:
    """None where the node takes no evidence."""
    witness = desk.witness
    if witness is None:
        return
    for name, says in COUNTED.items():
        yield CounterMetricFamily(f"holdfast_evidence_{name}", says, value=getattr(witness.tally, name))
    buckets = [(mark, float(count)) for mark, count in zip(_MARKS, accumulate(witness.sizes), strict=True)]
    says = "Records that were stored at a time."
    yield HistogramMetricFamily("holdfast_evidence_batch_records", says, buckets, float(witness.stored))
    yield GaugeMetricFamily("holdfast_evidence_open_streams", "Streams that are open.", value=witness.streams)
    waiting = len(desk.source.state.letters)
    yield GaugeMetricFamily("holdfast_evidence_dead_letters", "Dead letters that wait.", value=waiting)
    lag = GaugeMetricFamily(
        "holdfast_evidence_lag_records", "Records that senders have beyond the mark.", labels=["at"]
    )
    for percent in PERCENTILES:
        lag.add_metric([f"p{percent}"], witness.lag_at(percent))
    lag.add_metric(["max"], max(witness.lags(), default=0))
    yield lag
