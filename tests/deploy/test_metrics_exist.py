"""Alerts and the board read metrics that exist, with labels that exist; every alert has its runbook."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from tests.deploy.deploy_files import ROOT, UsedSeries, alert_rules, board, grouping_labels, series_of
from tests.loopback_ports import free_port
from tests.spool.spools import open_spool
from tests.stories.cli_runner import running_cli_node

from holdfast.cli.db.export_schedule import ExportMetrics
from holdfast.gateway.metrics import GatewayMetrics
from holdfast.shipping.metrics_endpoint import SenderCollector
from holdfast.shipping.sender_metrics import SenderMetrics
from holdfast.spool.prometheus import SpoolCollector

pytestmark = pytest.mark.rule("OBS-001")
METRICS = ROOT / "docs" / "reference" / "metrics.md"
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
Labels = Mapping[str, Mapping[str, set[str]]]
"""Every sample's name with the values of each of its labels."""


def labels_of(families: Iterable[Metric]) -> dict[str, dict[str, set[str]]]:
    """A family that has no sample yet is known by its type, its labels are those of the documented table."""
    found: dict[str, dict[str, set[str]]] = {}
    documented = documented_labels()
    for family in families:
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = {label: set() for label in documented.get(family.name + suffix, ())}
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def documented_labels() -> dict[str, list[str]]:
    """By metric, as documented; tests/stories/lives/test_node_metrics.py compares them with a node."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|", METRICS.read_text("utf-8"), flags=re.MULTILINE)
    return {
        name + ("_bucket" if kind == "histogram" else ""): re.findall(r"`(\w+)`", labels) for name, kind, labels in rows
    }


def collected(collector: Collector) -> list[Metric]:
    registry = CollectorRegistry()
    registry.register(collector)
    return list(registry.collect())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """What a running node, an agent, a spool, a gateway and a schedule of exports show."""
    return asyncio.run(read_all_metrics(tmp_path_factory.mktemp("metrics")))


async def read_all_metrics(folder: Path) -> Labels:
    grpc = {"HOLDFAST_GRPC__ENABLED": "true", "HOLDFAST_GRPC__PORT": str(free_port())}
    async with running_cli_node(folder, grpc) as node, httpx.AsyncClient(timeout=20) as client:
        page = await client.get(f"{node.url}/metrics")
    families = list(text_string_to_metric_families(page.text))
    spool = open_spool(folder)
    gateway = GatewayMetrics()
    gateway.count_request("/upload", 200, 0.1)
    gateway.faults["index"] += 1
    families += collected(SenderCollector(SenderMetrics(), "channel", lambda: [("session", spool)]))
    families += [*collected(SpoolCollector(lambda: [spool])), *collected(gateway)]
    families += ExportMetrics().registry.collect()
    spool.close()
    return labels_of(families)


def faults_of(series: UsedSeries, known: Labels) -> list[str]:
    if series.name not in known:
        return [f"no metric {series.name}"]
    labels = known[series.name]
    return [
        f"{series.name} has no {name}={value}"
        for name, value in series.labels.items()
        if name not in labels or (labels[name] and value not in labels[name])
    ]


def expressions() -> list[str]:
    panels = [panel for panel in board()["panels"] if panel["type"] != "row"]
    return [rule.expr for rule in alert_rules()] + [target["expr"] for each in panels for target in each["targets"]]


def test_every_metric_and_label_of_alerts_and_board_exists(known: Labels) -> None:
    assert len(expressions()) > 60
    used = [series for expr in expressions() for series in series_of(expr)]
    assert [fault for series in used for fault in faults_of(series, known)] == []
    for expr in expressions():
        labels = {label for series in series_of(expr) for label in known[series.name]}
        assert grouping_labels(expr) <= labels | ADDED_BY_PROMETHEUS, expr


def test_the_legends_of_the_board_are_labels_of_what_they_show(known: Labels) -> None:
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            labels = {label for series in series_of(target["expr"]) for label in known[series.name]}
            used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert used <= labels | ADDED_BY_PROMETHEUS, panel["title"]


def test_a_fault_in_an_expression_is_seen() -> None:
    known: Labels = {"holdfast_providers": {"status": {"ACTIVE"}}, "holdfast_slashes_total": {"severity": set()}}
    (series,) = series_of('holdfast_slashes_total{reason="any"} > 0')
    assert faults_of(series, known) == ["holdfast_slashes_total has no reason=any"]
    (series,) = series_of('sum(holdfast_providers{status="ALIVE"}) == 0')
    assert faults_of(series, known) == ["holdfast_providers has no status=ALIVE"]
    assert faults_of(UsedSeries("holdfast_provider", {}), known) == ["no metric holdfast_provider"]


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    page = (ROOT / "docs" / "how-to" / "runbooks.md").read_text("utf-8")
    titles = re.findall(r"^### (\w+)$", page, flags=re.MULTILINE)
    rules = alert_rules()
    assert titles == [rule.name for rule in rules]
    assert {rule.runbook for rule in rules} == {f"docs/how-to/runbooks.md#{title.lower()}" for title in titles}
    assert len(set(titles)) == len(titles)


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels, places = board()["panels"], list[tuple[int, int]]()
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        places += [
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        ]
    assert len(set(places)) == len(places)


def test_jobs_of_the_scrape_configuration_are_those_of_the_alerts() -> None:
    text = (ROOT / "deploy" / "prometheus" / "scrape.yml").read_text()
    jobs = set(re.findall(r"job_name: (\S+)", text))
    assert {job for rule in alert_rules() for job in re.findall(r'job="([^"]+)"', rule.expr)} <= jobs
