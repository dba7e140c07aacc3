"""The files under deploy/, read for the tests: units, alert rules, the board."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
RULES = DEPLOY / "prometheus" / "holdfast.rules.yml"
BOARD = DEPLOY / "grafana" / "holdfast.json"
_RULE = re.compile(
    r"""      - alert: (?P<name>\w+)
        expr: '(?P<expr>[^']+)'
        for: (?P<duration>\d+[smhd])
        labels: \{severity: (?P<severity>critical|warning|info)\}
        annotations:
          summary: "(?P<summary>[^"]+)"
          runbook: (?P<runbook>\S+)
"""
)
_GROUP = re.compile(r"  - name: holdfast-\w+\n    rules:\n")
_SERIES = re.compile(r"\b(?P<name>(?:holdfast|cap_results|blob|archiver|gateway)_\w+)(?:\{(?P<labels>[^}]*)\})?")
_BY = re.compile(r"\b(?:by|on) \((?P<labels>[^)]*)\)")
_SELECTOR = re.compile(r'(\w+)="([^"]*)"')


class AlertRule(NamedTuple):
    """One alert."""

    name: str
    expr: str
    duration: str
    severity: str
    summary: str
    runbook: str


class UsedSeries(NamedTuple):
    """A metric that an expression reads, and the labels it selects by."""

    name: str
    labels: dict[str, str]


def unit_settings(path: Path) -> dict[str, list[str]]:
    """Every setting of a unit by `Section.Name`, with all its values."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, is_set, value = line.partition("=")
            assert is_set, f"{path.name}: {line}"
            found.setdefault(f"{section}.{name}", []).append(value)
    return found


def alert_rules() -> list[AlertRule]:
    """All alerts. The file has nothing but comments, groups and rules of one shape: other YAML is not read."""
    text = RULES.read_text()
    left = _GROUP.sub("", _RULE.sub("", text)).splitlines()
    assert [line for line in left if line and not line.startswith("#")] == ["groups:"], left
    return [AlertRule(*match.groups()) for match in _RULE.finditer(text)]


def board() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(BOARD.read_text())
    return loaded


def series_of(expr: str) -> list[UsedSeries]:
    return [
        UsedSeries(match["name"], dict(_SELECTOR.findall(match["labels"] or ""))) for match in _SERIES.finditer(expr)
    ]


def grouping_labels(expr: str) -> set[str]:
    """The labels that an expression groups or joins by."""
    return {label.strip() for match in _BY.finditer(expr) for label in match["labels"].split(",")}
