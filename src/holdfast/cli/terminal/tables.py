"""How lists and records look: plain columns for pipes, colours on a terminal, JSON for programs, times in UTC."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

EMPTY_CELL = "-"
CALENDAR_END_MS = 253_402_300_800_000
"""The end of the year 9999."""
ID_DIGITS_SHOWN: Final = 12
"""Enough to be unique; every command accepts an id's beginning."""
_WHOLE_ID: Final = re.compile(r"[0-9a-f]{64}")
_COLOURS: Final = {
    "green": frozenset({"ACTIVE", "COMPLETED", "RESOLVED", "ARCHIVED", "FINAL", "PAID", "valid", "SEALED"}),
    "yellow": frozenset({"PENDING", "QUEUED", "ASSIGNED", "REGISTERED", "WAITING", "HELD", "UNLINKED", "SUBMITTED"}),
    "red": frozenset({"FAILED", "EXPIRED", "JAILED", "SUSPENDED", "ORPHANED", "DEAD_LETTER"}),
    "dim": frozenset({"CANCELLED", "RETIRED", "REFUNDED", "RETURNED", "PRUNED", EMPTY_CELL}),
}


def print_json(value: object) -> None:
    """For programs: the answer as it came."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: object) -> None:
    """For programs that read a stream: one object a line, at once."""
    print(msgspec.json.encode(value).decode(), flush=True)


def print_outcome(answer: object, *lines: str, as_json: bool) -> None:
    """What was done: as sentences, or as the answer that it is."""
    if as_json:
        print_json(answer)
        return
    for line in lines:
        print(line)


def print_more(after: object) -> None:
    """How to see the next page; on standard error, since it is not part of the list."""
    if after is not None:
        print(f"more: --after {after}", file=sys.stderr)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = True) -> None:
    """One line per row, below a line of heads. Ids are abbreviated unless `wide`."""
    cells = [[_cell(value, wide=wide) for value in row] for row in rows]
    if has_colours():
        _print_coloured(heads, cells)
        return
    lines = [list(heads), *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_record(record: Mapping[str, object]) -> None:
    """One line per field."""
    width = max(len(name) for name in record) + 2
    for name, value in record.items():
        print(f"{name:<{width}}{_cell(value)}")


def has_colours() -> bool:
    """Only a terminal shows them, and not where NO_COLOR is set (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def short_id(text: str) -> str:
    """The beginning of a whole id; anything else as it is."""
    return text[:ID_DIGITS_SHOWN] if _WHOLE_ID.fullmatch(text) else text


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


def _print_coloured(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - heavy: only a terminal needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_colour_of(cell)) for cell in row))
    Console(highlight=False).print(table)


def _colour_of(cell: str) -> str:
    return next((colour for colour, words in _COLOURS.items() if cell.split(" ", maxsplit=1)[0] in words), "")


def _cell(value: object, *, wide: bool = True) -> str:
    if value is None or value in ("", [], ()):
        return EMPTY_CELL
    if isinstance(value, list | tuple):
        return ", ".join(str(each) if wide else short_id(str(each)) for each in value)
    return str(value) if wide else short_id(str(value))
