"""What is on screen, as data: the acts fill it in, the two screens only show it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from holdfast.cli.demonstration.notebook import Note, Reader, Said

CUSTOMERS: Final = ("oak", "ash", "fir", "elm")


class Mark(Enum):
    """The five states, each with the glyph and the colour it has everywhere in Holdfast."""

    HELD = ("●", "#6aa3ff")
    IN_FLIGHT = ("◐", "#e9ab45")
    CONFIRMED = ("✔", "#35c2a4")
    LET_GO = ("○", "#868887")
    STUCK = ("▲", "#ff6b63")

    @property
    def glyph(self) -> str:
        return self.value[0]

    @property
    def colour(self) -> str:
        return self.value[1]


@dataclass
class Seat:
    """One client, as far as its own notes tell."""

    name: str
    reader: Reader
    notes: list[Note] = field(default_factory=list)
    sent: int = 0
    confirmed: int = 0
    refused: int = 0
    repeats: int = 0
    waiting: Note | None = None
    waiting_since: float = 0.0
    last: Note | None = None

    def read(self) -> None:
        for note in self.reader.fresh():
            self.notes.append(note)
            if note.said is Said.ASKED:
                self.sent += 1
                self.waiting, self.waiting_since = note, time.monotonic()
            else:
                self.waiting = None
                self.confirmed += note.said is Said.CONFIRMED
                self.refused += note.said is Said.REFUSED
                self.repeats += note.repeat and note.kind != "finalize"  # finality is asked for by everybody
                self.last = note

    @property
    def waiting_s(self) -> float:
        return time.monotonic() - self.waiting_since if self.waiting else 0.0


@dataclass(frozen=True)
class News:
    """Something that just happened."""

    at_s: float
    mark: Mark
    text: str


@dataclass(frozen=True)
class Check:
    """One line of the proof: what was looked at, what was found, whether it is as promised."""

    label: str
    found: str
    is_good: bool


@dataclass
class Board:
    """Everything a screen can show. Every figure is read from notes or from the store, none is counted by hand."""

    folder: Path
    seats: list[Seat]
    bank: Seat
    faults_planned: int
    begun: float = field(default_factory=time.monotonic)
    act: int = 0
    acts: int = 0
    title: str = ""
    sentence: str = ""
    node: tuple[Mark, str] = (Mark.LET_GO, "not started")
    news: list[News] = field(default_factory=list)
    events: int = 0
    held: int = 0
    pending: int = 0
    final: int = 0
    lost: int = 0
    twice: int = 0
    faults: int = 0
    checks: list[Check] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun

    @property
    def notes(self) -> list[Note]:
        return [note for seat in self._all() for note in seat.notes]

    @property
    def sent(self) -> int:
        return sum(seat.sent for seat in self._all())

    @property
    def confirmed(self) -> int:
        return sum(seat.confirmed for seat in self._all())

    @property
    def refused(self) -> int:
        return sum(seat.refused for seat in self.seats)

    @property
    def repeats(self) -> int:
        return sum(seat.repeats for seat in self.seats)

    @property
    def in_flight(self) -> int:
        return self.sent - self.confirmed - self.refused

    def read(self) -> None:
        for seat in self._all():
            seat.read()

    def _all(self) -> list[Seat]:
        return [self.bank, *self.seats]

    @property
    def is_good(self) -> bool:
        return bool(self.checks) and all(check.is_good for check in self.checks)


class Screen(Protocol):
    """Shows the board as it is now; called often."""

    def show(self, board: Board) -> None: ...
    def close(self, board: Board) -> None: ...


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
