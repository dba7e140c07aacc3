"""Metrics, from the collectors that Prometheus reads, each asked for its families beside a node that did nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from prometheus_client import Metric
from tools.reference.markdown import code, head, table

from holdfast.api.front.settings import FrontCounts
from holdfast.api.http.metrics.requests import HttpMetrics
from holdfast.cli.db.export_schedule import ExportMetrics
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.shipping.metrics_endpoint import SenderCollector
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.spool.prometheus import SpoolCollector

ABOUT: Final = """\
In the format of Prometheus. Counters and histograms start with the process; what a start folds again is not
counted again. Gauges are right at once. Alerts on them are in `deploy/prometheus`, each with its
[runbook](../how-to/runbooks.md)."""


class Nothing(int):
    """Whatever a collector asks of a node: zero, empty, and again nothing."""

    def __getattr__(self, _: str) -> Nothing:
        return self

    grpc_connections = staticmethod(FrontCounts)

    def __call__(self, *_: object, **__: object) -> Nothing:
        return self

    def __getitem__(self, _: object) -> Nothing:
        return self

    def __add__(self, _: object) -> Nothing:
        return self

    def __sub__(self, _: object) -> Nothing:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def cumulative(self, *_: object) -> list[tuple[str, int]]:
        return [("+Inf", 0)]


def page() -> str:
    places = (
        ("A node", "`GET /metrics` of the HTTP API.", _of_node()),
        ("An agent", "`holdfast agent --metrics PORT`: how its evidence is delivered.", _of_sender()),
        ("A spool", "`holdfast.spool.prometheus`, in the process that writes it.", SpoolCollector(list).collect()),
        ("The gateway", "`GET /metrics` of `holdfast gateway`.", _of_gateway()),
        ("Scheduled exports", "`holdfast db export --every … --metrics PORT`.", ExportMetrics().registry.collect()),
    )
    sections = [f"## {title}\n\n{about}\n\n{_table(families)}" for title, about, families in places]
    return "\n".join([head("Metrics", ABOUT), *sections])


def _table(families: Iterable[Metric]) -> str:
    return table(("metric", "type", "labels", "meaning"), [_row(each) for each in families])


def _row(family: Metric) -> tuple[str, str, str, str]:
    labels: tuple[str, ...] = getattr(family, "_labelnames", ())
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return code(name), family.type, ", ".join(code(each) for each in labels), family.documentation


def _of_node() -> Iterator[Metric]:
    access: Any = Nothing()
    metrics = HttpMetrics(access, access)
    metrics.dead_letters = 0
    return metrics.collect()


def _of_sender() -> Iterator[Metric]:
    return SenderCollector(SenderMetrics(), "channel", list).collect()


def _of_gateway() -> Iterator[Metric]:
    metrics = GatewayMetrics()
    metrics.gauges = dict.fromkeys(("connections", "uploads_running", "index_waiting", "scrub_findings"), float)
    return metrics.collect()
