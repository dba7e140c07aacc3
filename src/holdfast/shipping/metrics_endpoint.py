"""A sender's metrics for Prometheus, on a loopback port that serves nothing else (OBS-001)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.spool import Spool
from holdfast.system.histogram import Histogram

RESPONSE_HEAD: Final = (
    b"HTTP/1.1 %s\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)
REQUEST_BYTES_MAX: Final = 16 << 10
READ_S: Final = 5.0
PREFIX: Final = "holdfast_sender_"
NAME_LENGTH_MAX: Final = 100
"""Names of refusals come from the receiver."""
COUNTERS: Final = {
    "streams": "Streams that were opened.",
    "replays": "Streams that began with records which the node did not have.",
    "records": "Records that were sent.",
    "duplicates": "Records that may have been sent before.",
    "acks": "Acks that advanced a watermark.",
    "gaps": "How often the node missed records.",
    "credit_stalls": "How often a batch had to wait for credit.",
    "ack_stalls": "Streams that were closed because acks did not advance.",
}
GAUGES: Final = {
    "unacked_records": "Records that are spooled and not acked.",
    "oldest_unacked_age_ms": "Age of the oldest record that is not acked.",
    "waiting_records": "Records that are emitted and not spooled yet.",
    "channel_bytes": "Bytes in the folder of the channel.",
}
ListOpenSessions = Callable[[], list[tuple[str, Spool]]]
"""The sessions that are being delivered, each with its spool; the live one first."""


class SenderCollector(Collector):
    """Reads the counters and the open spools whenever it is scraped."""

    def __init__(self, metrics: SenderMetrics, channel: str, list_sessions: ListOpenSessions) -> None:
        self._metrics, self._channel, self._list_sessions = metrics, channel, list_sessions

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, getattr(metrics, name))
        refused = CounterMetricFamily(f"{PREFIX}refused", "Refusals by the node, by name.", labels=["name"])
        for name, count in sorted(metrics.refusals.items()):
            refused.add_metric([name[:NAME_LENGTH_MAX]], count)
        yield refused
        yield _histogram("batch_records", "Records in a message.", metrics.batch_records)
        yield _histogram("batch_bytes", "Bytes of records in a message.", metrics.batch_bytes)
        yield from self._gauges()

    def _gauges(self) -> Iterator[Metric]:
        readings = [(session, spool.metrics()) for session, spool in self._list_sessions()]
        for name, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=["channel", "session"])
            for session, reading in readings:
                gauge.add_metric([self._channel, session], getattr(reading, name))
            yield gauge


def _histogram(name: str, text: str, sizes: Histogram) -> Metric:
    return HistogramMetricFamily(f"{PREFIX}{name}", text, list(sizes.cumulative()), sizes.sum)


class MetricsEndpoint:
    """The port, while the agent runs."""

    def __init__(self, metrics: SenderMetrics, channel: str, list_sessions: ListOpenSessions) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(SenderCollector(metrics, channel, list_sessions))
        self._server: asyncio.Server | None = None

    async def open(self, port: int) -> int:
        """The port it listens on; 0 picks a free one. Loopback only, since there is no authentication."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=REQUEST_BYTES_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._make_response(request.split(b" ")[:2]))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()

    def _make_response(self, request: list[bytes]) -> bytes:
        if request != [b"GET", b"/metrics"]:
            return RESPONSE_HEAD % (b"404 Not Found", 0)
        body = generate_latest(self._registry)
        return RESPONSE_HEAD % (b"200 OK", len(body)) + body
