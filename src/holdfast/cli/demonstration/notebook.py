"""A client's own notes: what it asked, and what the node confirmed, each line written only after it happened.

One JSON object a line, so that a human can read along and another process can follow while it grows.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from types import TracebackType

import msgspec


class Said(StrEnum):
    """Where a command stands for the one who sent it."""

    ASKED = "asked"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. `event` is the number the node gave; `repeat` says that it was done by an earlier asking."""

    said: Said
    kind: str
    id: str
    amount: int = 0
    event: int = 0
    repeat: bool = False
    why: str = ""

    def __str__(self) -> str:
        if self.kind == "finalize":
            return f"finalize {self.id}"
        return f"{self.kind} {self.amount}" if self.amount else self.kind


class Notebook:
    """Appends notes to a file, each at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def write(self, note: Note) -> None:
        self._file.write(msgspec.json.encode(note) + b"\n")


class Reader:
    """Reads a notebook that another process writes: every whole line once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def fresh(self) -> list[Note]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [msgspec.json.decode(line, type=Note) for line in whole.splitlines()]
