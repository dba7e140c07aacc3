"""Rounds in which all contestants take turns, and the medians, ranges and ratios that come of them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from bench import machine_load
from bench.machine_load import MachineLoad

Turn = Callable[[int], Awaitable[Mapping[str, float]]]
"""One contestant's turn in round n: what it measured, by the name of the row."""


class Row(msgspec.Struct):
    """One contestant's figure in every round; `ratios` is to the baseline's figure of the same round."""

    name: str
    figures: list[float]
    ratios: list[float] = []


class Goal(msgspec.Struct):
    """A promise, what was measured, and whether it was kept."""

    says: str
    measured: str
    is_met: bool


class Table(msgspec.Struct):
    """What one comparison measured, ready to be printed, saved and drawn."""

    name: str
    title: str
    unit: str
    baseline: str | None
    rows: list[Row]
    goals: list[Goal] = []
    notes: list[str] = []
    not_measured: list[str] = []
    """Contestants that could not take part, each with its reason."""


class Report(msgspec.Struct):
    """What one program measured, and in what state the machine was when it began."""

    program: str
    is_quick: bool
    python: str
    disk: str
    load: MachineLoad
    tables: list[Table]


async def interleave(turns: Sequence[Turn], rounds: int) -> dict[str, list[float]]:
    """Let all take a turn in every round, each round beginning with another one, so that no one has the best place."""
    figures: dict[str, list[float]] = {}
    for number in range(rounds):
        first = number % len(turns)
        for turn in (*turns[first:], *turns[:first]):
            gc.collect()
            for name, figure in (await turn(number)).items():
                figures.setdefault(name, []).append(figure)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return figures


def table(
    name: str, title: str, unit: str, figures: Mapping[str, Sequence[float]], order: Sequence[str], baseline: str | None
) -> Table:
    """Rows in the given order, with their ratios to the baseline round by round."""
    rows = []
    for each in order:
        ratios = [] if baseline is None else ratios_of(figures[each], figures[baseline])
        rows.append(Row(each, list(figures[each]), ratios))
    return Table(name, title, unit, baseline, rows, notes=[machine_load.describe()])


def ratios_of(figures: Sequence[float], baseline: Sequence[float]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(figures, baseline, strict=True)]


def at_least(says: str, values: Sequence[float], limit: float, unit: str = "×") -> Goal:
    return Goal(f"{says} ≥ {_short(limit)}{unit}", spread(values, unit), median(values) >= limit)


def at_most(says: str, values: Sequence[float], limit: float, unit: str) -> Goal:
    return Goal(f"{says} ≤ {_short(limit)}{unit}", spread(values, unit), median(values) <= limit)


def spread(values: Sequence[float], unit: str = "") -> str:
    """Median and range."""
    return f"{_short(median(values))}{unit} ({_short(min(values))}–{_short(max(values))})"


def _short(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"


def show(each: Table) -> str:
    """The table as text."""
    lines = [f"{each.title} [{each.unit}]"]
    width = max(len(row.name) for row in each.rows)
    for row in each.rows:
        ratio = f"  {spread(row.ratios, '×')}" if row.ratios else ""
        lines.append(f"  {row.name:<{width}}  {spread(row.figures):>28}{ratio}")
    if each.baseline:
        lines.append(f"  × is to: {each.baseline}; median (range) of {len(each.rows[0].figures)} rounds")
    lines += [f"  {'met   ' if goal.is_met else 'MISSED'} {goal.says}: {goal.measured}" for goal in each.goals]
    lines += [f"  NOT MEASURED {who}" for who in each.not_measured]
    lines += [f"  {note}" for note in each.notes]
    return "\n".join(lines)


def save(path: Path, report: Report) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)
