"""Pages to read at the end: every job's output, and one job's chain of custody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.demo.event_history import JobTrace, LeaseTrace
from holdfast.demo.screen.board import Board, StateGlyph, TextPage

COLUMNS: Final = 4
CELL: Final = 17


def results_page(board: Board, outputs: Mapping[int, bytes]) -> TextPage:
    """Every job with its output, column by column."""
    cells = []
    for job in board.jobs:
        output = outputs.get(job.number)
        summary = "nothing" if output is None else job.kind.summarize(output)
        cells.append(f"{job.number:>2} {job.kind.name} ▸ {summary}"[:CELL].ljust(CELL))
    height = -(-len(cells) // COLUMNS)
    rows = [" ".join(cells[row::height]) for row in range(height)]
    is_complete = len(outputs) == len(board.jobs)
    state = StateGlyph.CONFIRMED if is_complete else StateGlyph.STUCK
    return TextPage(
        f"{len(outputs)} results, bytes checked against their digests", [(state, row.rstrip()) for row in rows]
    )


def custody_page(board: Board, job: JobTrace) -> TextPage:
    """Who passed it to whom, what proves it, and by which rule."""
    lines = [_line(board, job.admitted_ms, StateGlyph.CONFIRMED, "you → queue", _receipt(job), "JOB-006")]
    for lease in job.leases:
        lines += _attempt(board, lease)
    for proof in job.accepted:
        proves = f"proof by {proof.method}, digest {proof.digest[:8]}…"
        name = board.history.name_of(proof.provider)
        lines.append(_line(board, proof.at_ms, StateGlyph.CONFIRMED, f"{name} → ledger", proves, "PRF-003"))
        paid = f"{proof.charged} paid to {proof.payee}, {job.max_fee - proof.charged} back"
        sealed_ms = board.history.sealed_ms.get(proof.height, proof.at_ms)
        held = f"block {proof.height} holds it; {paid}"
        lines.append(_line(board, sealed_ms, StateGlyph.CONFIRMED, "ledger → you", held, "RES-002"))
    return TextPage(f"chain of custody of {board.job_name(job.id)}, task {job.id[:16]}…", lines)


def _receipt(job: JobTrace) -> str:
    return f"receipt: event {job.admitted[0]}, {job.max_fee} reserved"


def _attempt(board: Board, lease: LeaseTrace) -> list[tuple[StateGlyph, str]]:
    name = board.history.name_of(lease.provider)
    proves = f"lease {lease.id[:8]}…, attempt {lease.attempt}"
    lines = [_line(board, lease.start_ms, StateGlyph.IN_FLIGHT, f"queue → {name}", proves, "LEA-001")]
    if lease.acked_ms is not None:
        lines.append(
            _line(board, lease.acked_ms, StateGlyph.CONFIRMED, name, "ACK: the provider has the work", "LEA-003")
        )
    if lease.submitted_ms is not None:
        proves = "completion as evidence, bytes uploaded"
        lines.append(_line(board, lease.submitted_ms, StateGlyph.CONFIRMED, f"{name} → node", proves, "EVD-005"))
    if lease.closed is not None:
        wait_s = (lease.closed.not_before_ms - lease.closed.at_ms) / 1000
        proves = f"{lease.closed.reason}; again in {wait_s:.1f} s"
        lines.append(_line(board, lease.closed.at_ms, StateGlyph.STUCK, f"{name} → queue", proves, "RTY-002"))
    return lines


def _line(board: Board, at_ms: int, state: StateGlyph, route: str, proves: str, rule: str) -> tuple[StateGlyph, str]:
    """The time is in seconds since the first event."""
    at_s = (at_ms - board.history.first_ms) / 1000
    return state, f"{at_s:5.1f} s  {route:<13} {proves:<42.42} {rule}"
