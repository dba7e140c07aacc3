"""What is on screen, as data: the acts fill it in, the two screens only show it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast.cli.demonstration.faults import Fault
from holdfast.cli.demonstration.history import History
from holdfast.cli.demonstration.jobs import Job
from holdfast.cli.demonstration.notebook import Note, Said
from holdfast.cli.demonstration.spools import behind
from holdfast.cli.demonstration.verdict import judge

AGENTS: Final = ("oak", "ash", "fir")
FAULTS: Final = 2
"""As many things are broken on purpose."""


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
    """One agent: how its process is, and what lies in its spool."""

    name: str
    state: tuple[Mark, str] = (Mark.LET_GO, "not started")
    spooled: dict[str, int] = field(default_factory=dict)


class News(NamedTuple):
    """Something that just happened."""

    at_s: float
    mark: Mark
    text: str


class Check(NamedTuple):
    """One line of the proof: what was looked at, what was found, whether it is as promised."""

    label: str
    found: str
    is_good: bool


class Page(NamedTuple):
    """Something to read in peace, in place of what moves."""

    title: str
    lines: list[tuple[Mark, str]]


class Row(NamedTuple):
    """One hand-off: how much is with the giver, under way, and with the taker."""

    name: str
    way: str
    held: int
    in_flight: int
    confirmed: int


@dataclass
class Board:
    """Everything a screen can show. Every figure is read from notes, spools or the store, none is counted by hand."""

    folder: Path
    pace: str
    jobs: list[Job]
    begun: float = field(default_factory=time.monotonic)
    act: int = 0
    acts: int = 0
    title: str = ""
    sentence: str = ""
    node: tuple[Mark, str] = (Mark.LET_GO, "not started")
    seats: dict[str, Seat] = field(default_factory=lambda: {name: Seat(name) for name in AGENTS})
    history: History = field(default_factory=History)
    notes: list[Note] = field(default_factory=list)
    faults_made: list[Fault] = field(default_factory=list)
    news: list[News] = field(default_factory=list)
    page: Page | None = None
    lost: int = 0
    twice: int = 0
    checks: list[Check] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begun

    def judge(self) -> None:
        """Compare what the requester was told with what the store says, as far as that has been read."""
        seen = self.history
        verdict = judge((note for note in self.notes if note.event <= seen.last), seen)
        self.lost, self.twice = len(verdict.lost), len(verdict.twice)

    @property
    def submitted(self) -> int:
        return sum(note.said is Said.CONFIRMED for note in self.notes)

    @property
    def finished(self) -> int:
        return self.history.finished

    @property
    def faults(self) -> int:
        """Survived ones."""
        return sum(fault.is_survived(self.history) for fault in self.faults_made)

    @property
    def is_good(self) -> bool:
        return bool(self.checks) and all(check.is_good for check in self.checks)

    def job_of(self, task_id: str) -> Job | None:
        """Which of the forty this is, by its receipt."""
        number = next((note.number for note in self.notes if note.task_id == task_id), None)
        return None if number is None else self.jobs[number - 1]

    def job_name(self, task_id: str) -> str:
        job = self.job_of(task_id)
        return f"job {job.number}" if job is not None else f"job {task_id[:8]}"

    def behind(self, name: str) -> int:
        """Records that an agent keeps because the node has not said: I have it."""
        return behind(self.seats[name].spooled, self.history.marks)

    def custody(self) -> list[Row]:
        """The hand-offs, each thing on its way from left to right."""
        seen = self.history
        asked = sum(note.said is Said.ASKED for note in self.notes)
        taken = sum(bool(job.leases) for job in seen.jobs.values())
        accepted = sum(bool(job.accepted) for job in seen.jobs.values())
        waiting = sum(not job.accepted and job.lease is None for job in seen.jobs.values())
        under_way = sum(self.behind(name) for name in self.seats)
        submitted = sum(lease.submitted_ms is not None for lease in seen.live())
        return [
            Row("1 job", "you → queue", waiting, asked - self.submitted, taken),
            Row("2 work", "queue → provider", 0, len(list(seen.live())), accepted),
            Row("3 evidence", "spool → node", 0, under_way, sum(seen.marks.values())),
            Row("4 result", "provider → ledger", 0, submitted + accepted - self.finished, self.finished),
        ]


class Screen(Protocol):
    """Shows the board as it is now; called often."""

    def show(self, board: Board) -> None: ...
    def close(self, board: Board) -> None: ...


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def figures(board: Board) -> list[tuple[str, str, bool | None]]:
    """What is always on screen: name, value, and whether it is as promised; None where it only counts up."""
    return [
        ("submitted", f"{board.submitted}", None),
        ("finished", f"{board.finished}", None),
        ("lost", f"{board.lost}", board.lost == 0),
        ("done twice", f"{board.twice}", board.twice == 0),
        ("faults survived", f"{board.faults} of {FAULTS}", None),
    ]
