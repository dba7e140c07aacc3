"""Writes docs/reference from the code: `python -m tools.generate_reference` (make reference)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools import draw_state_charts
from tools.reference import commands, errors, events, methods, metrics, settings

FOLDER: Final = Path(__file__).parent.parent / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands.page,
    "settings.md": settings.page,
    "methods.md": methods.page,
    "events.md": events.page,
    "metrics.md": metrics.page,
    "errors.md": errors.page,
    "state_charts.md": draw_state_charts.page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")
        print(f"written: {FOLDER / name}")
