"""Pages to read at the end: what came out of every job, and one job's way from hand to hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.cli.demonstration.board import Board, Mark, Page
from holdfast.cli.demonstration.history import Lease, Life

COLUMNS: Final = 4
CELL: Final = 17


def results(board: Board, outputs: Mapping[int, bytes]) -> Page:
    """Every job with what it gave, column by column."""
    cells = []
    for job in board.jobs:
        output = outputs.get(job.number)
        says = "nothing" if output is None else job.kind.reads(output)
        cells.append(f"{job.number:>2} {job.kind.name} ▸ {says}"[:CELL].ljust(CELL))
    height = -(-len(cells) // COLUMNS)
    rows = [" ".join(cells[row::height]) for row in range(height)]
    is_whole = len(outputs) == len(board.jobs)
    mark = Mark.CONFIRMED if is_whole else Mark.STUCK
    return Page(f"{len(outputs)} results, bytes checked against their digests", [(mark, row.rstrip()) for row in rows])


def custody(board: Board, job: Life) -> Page:
    """Who gave it to whom and what proves it, with the rule that says so."""
    lines = [_line(board, job.admitted_ms, Mark.CONFIRMED, "you → queue", _receipt(job), "JOB-006")]
    for lease in job.leases:
        lines += _attempt(board, lease)
    for proof in job.accepted:
        said = f"proof by {proof.method}, digest {proof.digest[:8]}…"
        name = board.history.name_of(proof.provider)
        lines.append(_line(board, proof.at_ms, Mark.CONFIRMED, f"{name} → ledger", said, "PRF-003"))
        paid = f"{proof.charged} paid to {proof.payee}, {job.max_fee - proof.charged} back"
        sealed_ms = board.history.sealed_ms.get(proof.height, proof.at_ms)
        held = f"block {proof.height} holds it; {paid}"
        lines.append(_line(board, sealed_ms, Mark.CONFIRMED, "ledger → you", held, "RES-002"))
    return Page(f"chain of custody of {board.job_name(job.id)}, task {job.id[:16]}…", lines)


def _receipt(job: Life) -> str:
    return f"receipt: event {job.admitted[0]}, {job.max_fee} reserved"


def _attempt(board: Board, lease: Lease) -> list[tuple[Mark, str]]:
    name = board.history.name_of(lease.provider)
    given = f"lease {lease.id[:8]}…, attempt {lease.attempt}"
    lines = [_line(board, lease.start_ms, Mark.IN_FLIGHT, f"queue → {name}", given, "LEA-001")]
    if lease.acked_ms is not None:
        lines.append(_line(board, lease.acked_ms, Mark.CONFIRMED, name, "ACK: the work is in its hands", "LEA-003"))
    if lease.submitted_ms is not None:
        handed = "completion as evidence, bytes handed over"
        lines.append(_line(board, lease.submitted_ms, Mark.CONFIRMED, f"{name} → node", handed, "EVD-005"))
    if lease.closed is not None:
        wait_s = (lease.closed.not_before_ms - lease.closed.at_ms) / 1000
        said = f"{lease.closed.reason}; again in {wait_s:.1f} s"
        lines.append(_line(board, lease.closed.at_ms, Mark.STUCK, f"{name} → queue", said, "RTY-002"))
    return lines


def _line(board: Board, at_ms: int, mark: Mark, way: str, proves: str, rule: str) -> tuple[Mark, str]:
    """Seconds since the first event."""
    at_s = (at_ms - board.history.first_ms) / 1000
    return mark, f"{at_s:5.1f} s  {way:<13} {proves:<42.42} {rule}"
