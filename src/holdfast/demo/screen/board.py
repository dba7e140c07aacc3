"""What is on screen, as data: the acts fill it in, the two screens show it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast.demo.event_history import BlobTrace, EventHistory
from holdfast.demo.faults import DEFAULT_FAULTS, InjectedFault
from holdfast.demo.jobs import DemoJob
from holdfast.demo.receipt_check import check_receipts
from holdfast.demo.receipts import RequestRecord, RequestStatus
from holdfast.demo.spools import unacked_count

AGENTS: Final = ("oak", "ash", "fir")


class StateGlyph(Enum):
    """The five states, each with the glyph and the colour that it has everywhere in Holdfast."""

    HELD = ("●", "#6aa3ff")
    IN_FLIGHT = ("◐", "#e9ab45")
    CONFIRMED = ("✔", "#35c2a4")
    RELEASED = ("○", "#868887")
    STUCK = ("▲", "#ff6b63")

    @property
    def glyph(self) -> str:
        return self.value[0]

    @property
    def colour(self) -> str:
        return self.value[1]


@dataclass
class AgentPanel:
    """One agent: the state of its process, and what is in its spool."""

    name: str
    state: tuple[StateGlyph, str] = (StateGlyph.RELEASED, "not started")
    spooled: dict[str, int] = field(default_factory=dict)


class News(NamedTuple):
    """Something that just happened."""

    at_s: float
    state: StateGlyph
    text: str


class Check(NamedTuple):
    """One line of the proof: what was checked, the outcome, and whether it is as promised."""

    label: str
    detail: str
    is_good: bool


class TextPage(NamedTuple):
    """A page to read, instead of the moving panels."""

    title: str
    lines: list[tuple[StateGlyph, str]]


class CustodyRow(NamedTuple):
    """One transfer of custody: how much is still held, in flight, and confirmed."""

    name: str
    route: str
    held: int
    in_flight: int
    confirmed: int


@dataclass
class Board:
    """Everything a screen can show. Every figure is read from receipts, spools or the store; none is counted here."""

    folder: Path
    pace: str
    jobs: list[DemoJob]
    started_s: float = field(default_factory=time.monotonic)
    act: int = 0
    acts_total: int = 0
    title: str = ""
    sentence: str = ""
    node: tuple[StateGlyph, str] = (StateGlyph.RELEASED, "not started")
    agents: dict[str, AgentPanel] = field(default_factory=lambda: {name: AgentPanel(name) for name in AGENTS})
    history: EventHistory = field(default_factory=EventHistory)
    records: list[RequestRecord] = field(default_factory=list)
    faults_planned: int = len(DEFAULT_FAULTS)
    faults_injected: list[InjectedFault] = field(default_factory=list)
    bytes_here: tuple[int, int] | None = None
    """Outputs in the node's store and on its disk, as it measured them last; None where there is no archive."""
    news: list[News] = field(default_factory=list)
    page: TextPage | None = None
    lost: int = 0
    duplicated: int = 0
    checks: list[Check] = field(default_factory=list)
    closing_lines: list[str] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def check_receipts(self) -> None:
        """Compare the requester's receipts with what the store says, as far as it has been read."""
        seen = self.history
        verdict = check_receipts((record for record in self.records if record.event <= seen.last), seen)
        self.lost, self.duplicated = len(verdict.lost), len(verdict.duplicated)

    @property
    def submitted(self) -> int:
        return sum(record.status is RequestStatus.CONFIRMED for record in self.records)

    @property
    def finished(self) -> int:
        return self.history.finished

    @property
    def faults_survived(self) -> int:
        return sum(fault.is_survived(self.history) for fault in self.faults_injected)

    @property
    def is_good(self) -> bool:
        return bool(self.checks) and all(check.is_good for check in self.checks)

    def job_of(self, task_id: str) -> DemoJob | None:
        """The demo's job with this task id, by its receipt."""
        number = next((record.number for record in self.records if record.task_id == task_id), None)
        return None if number is None else self.jobs[number - 1]

    def job_name(self, task_id: str) -> str:
        job = self.job_of(task_id)
        return f"job {job.number}" if job is not None else f"job {task_id[:8]}"

    def unacked(self, name: str) -> int:
        """How many records an agent keeps because the node has not acked them."""
        return unacked_count(self.agents[name].spooled, self.history.watermarks)

    def custody_rows(self) -> list[CustodyRow]:
        """The transfers of custody; things move from held to confirmed."""
        seen = self.history
        requested = sum(record.status is RequestStatus.REQUESTED for record in self.records)
        leased = sum(bool(job.leases) for job in seen.jobs.values())
        accepted = sum(bool(job.accepted) for job in seen.jobs.values())
        waiting = sum(not job.accepted and job.lease is None for job in seen.jobs.values())
        in_flight = sum(self.unacked(name) for name in self.agents)
        submitted = sum(lease.submitted_ms is not None for lease in seen.live_leases())
        blobs = seen.blobs.values()
        archived, failing = sum(bool(blob.archived) for blob in blobs), sum(_is_failing(blob) for blob in blobs)
        return [
            CustodyRow("1 job", "you → queue", waiting, requested - self.submitted, leased),
            CustodyRow("2 work", "queue → provider", 0, len(list(seen.live_leases())), accepted),
            CustodyRow("3 evidence", "spool → node", 0, in_flight, sum(seen.watermarks.values())),
            CustodyRow("4 result", "provider → ledger", 0, submitted + accepted - self.finished, self.finished),
            CustodyRow("5 blob", "node → archive", len(blobs) - archived - failing, failing, archived),
        ]


def _is_failing(blob: BlobTrace) -> bool:
    return bool(blob.failures) and not blob.archived


class Screen(Protocol):
    """Shows the board as it is now; called often."""

    def show(self, board: Board) -> None: ...
    def close(self, board: Board) -> None: ...


def format_elapsed(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def figures(board: Board) -> list[tuple[str, str, bool | None]]:
    """What is always on screen: name, value, and whether it is as promised; None where it only counts up."""
    return [
        ("submitted", f"{board.submitted}", None),
        ("finished", f"{board.finished}", None),
        ("lost", f"{board.lost}", board.lost == 0),
        ("done twice", f"{board.duplicated}", board.duplicated == 0),
        ("faults survived", f"{board.faults_survived} of {board.faults_planned}", None),
    ]
