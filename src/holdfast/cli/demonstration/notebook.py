"""The requester's own notes: what was asked, and for what the node gave a receipt, each line written after it happened.

One JSON object a line, so that a human can read along.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec


class Said(StrEnum):
    """Where a request stands for the one who made it."""

    ASKED = "asked"
    CONFIRMED = "confirmed"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `event` is the number that the receipt names; `repeat` says that an earlier asking had done it."""

    said: Said
    number: int
    """Which of the demo's jobs."""
    task_id: str = ""
    event: int = 0
    repeat: bool = False


class Notebook:
    """Appends notes to a file, each at once, and keeps them at hand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.notes: list[Note] = []

    def write(self, note: Note) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(note) + b"\n")
        self.notes.append(note)
