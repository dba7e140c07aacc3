"""How a reference page is written: a head that says where it comes from, and tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence


def head(title: str, about: str) -> str:
    origin = "Generated from the code by `make reference`; a test compares this page with it."
    return f"# {title}\n\n{wrapped(about)}\n\n{origin}\n"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars inside of cells are escaped."""
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(cell(each) for each in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> str:
    """A paragraph in lines of the width that pages have."""
    return "\n".join(textwrap.wrap(text, 140, break_long_words=False, break_on_hyphens=False))


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "–"


def code(text: str) -> str:
    return f"`{text}`" if text else ""
