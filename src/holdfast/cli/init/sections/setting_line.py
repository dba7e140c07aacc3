"""What is said about a setting, and the table that it stands in."""

from __future__ import annotations

from typing import NamedTuple


class SettingLine(NamedTuple):
    """One setting and its comment."""

    name: str
    comment: str = ""
    example: str = "…"
    """What to write in the place of the value, where there is no default to show."""


class Section(NamedTuple):
    """A table of the file."""

    name: str
    comment: tuple[str, ...]
    settings: tuple[SettingLine, ...]
