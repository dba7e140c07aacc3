"""How lists and records look on a terminal: columns as wide as their widest cell, names before values, times in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

EMPTY_CELL = "-"
CALENDAR_END_MS = 253_402_300_800_000
"""The end of the year 9999."""


def print_json(value: object) -> None:
    """For programs: the answer as it came."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line per row, below a line of heads."""
    lines = [list(heads), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_record(record: Mapping[str, object]) -> None:
    """One line per field."""
    width = max(len(name) for name in record) + 2
    for name, value in record.items():
        print(f"{name:<{width}}{_cell(value)}")


def format_time(ms: int | None) -> str:
    """A time to the second in UTC. A time that a provider claims may be later than any calendar can show."""
    if ms is None:
        return EMPTY_CELL
    if ms >= CALENDAR_END_MS:
        return "after the year 9999"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def pluralize(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def repeat_note(answer: Mapping[str, object]) -> str:
    """`event 7`, or `event 7, as before` where an earlier call had already done it."""
    return f"event {answer['event']}{', as before' if answer['is_repeat'] else ''}"


def _cell(value: object) -> str:
    if value is None or value in ("", [], ()):
        return EMPTY_CELL
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
