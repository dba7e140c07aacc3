"""How lists and records look on a terminal: columns that fit their widest cell, names before values, times in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

NONE = "-"
CALENDAR_MS = 253_402_300_800_000
"""The end of the year 9999."""


def print_json(value: object) -> None:
    """For programs: the answer as it came."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line a row, under a line of heads."""
    lines = [list(heads), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_record(record: Mapping[str, object]) -> None:
    """One line a field."""
    width = max(len(name) for name in record) + 2
    for name, value in record.items():
        print(f"{name:<{width}}{_cell(value)}")


def when(ms: int | None) -> str:
    """A moment to the second, as everybody reads it the same; what a provider claims may lie beyond any calendar."""
    if ms is None:
        return NONE
    if ms >= CALENDAR_MS:
        return "after the year 9999"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _cell(value: object) -> str:
    if value is None or value in ("", [], ()):
        return NONE
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
