"""Draws a table as a small SVG: a bar per row from its ratio or figure, a line for its range; no clock, no host."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median

from bench.measure import Row, Table, spread

NAME_WIDTH, BAR_WIDTH, LABEL_WIDTH, LINE = 370, 300, 310, 24
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.t{font-weight:600}.b{fill:#0a7ea4}.o{fill:#b6c2cc}"
    ".r{stroke:#24292f;stroke-width:1.5}.n{text-anchor:end}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.r{stroke:#e6edf3}.o{fill:#57606a}}"
)


def draw(table: Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(table), encoding="utf-8")


def svg(table: Table) -> str:
    """Ratios where the table has a baseline, else figures."""
    top = max(max(_values(row)) for row in table.rows)
    width, height = NAME_WIDTH + BAR_WIDTH + LABEL_WIDTH, LINE * (len(table.rows) + 2)
    bars = [_bar(row, LINE * (n + 1), top, is_baseline=row.name == table.baseline) for n, row in enumerate(table.rows)]
    what = f"{table.title} [{table.unit}]"
    foot = f"median (range) of {len(table.rows[0].figures)} rounds"
    if table.baseline:
        foot = f"× is to: {table.baseline}; {foot}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(what)}</title><style>{STYLE}</style>",
            f'<text class="t" x="8" y="17">{escape(what)}</text>',
            *bars,
            f'<text x="8" y="{height - 8}">{escape(foot)}</text>',
            "</svg>\n",
        ]
    )


def _bar(row: Row, y: int, top: float, *, is_baseline: bool) -> str:
    low, middle, high = (round(BAR_WIDTH * value / top, 1) for value in _low_middle_high(_values(row)))
    label = f"{median(row.ratios):.3g}× · {spread(row.figures)}" if row.ratios else spread(row.figures)
    kind, x = "o" if is_baseline else "b", NAME_WIDTH
    return (
        f'<text class="n" x="{x - 8}" y="{y + 16}">{escape(row.name)}</text>'
        f'<rect class="{kind}" x="{x}" y="{y + 4}" width="{middle}" height="{LINE - 8}"/>'
        f'<line class="r" x1="{x + low}" x2="{x + high}" y1="{y + 12}" y2="{y + 12}"/>'
        f'<text x="{x + high + 8}" y="{y + 16}">{escape(label)}</text>'
    )


def _values(row: Row) -> Sequence[float]:
    return row.ratios or row.figures


def _low_middle_high(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), median(values), max(values)
