"""`holdfast spool verify` and `repair`: is a file whole, and if not, what can be done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.spool.session import NOT_WHOLE, UNREADABLE, Progress, SpoolFile, owned, place, ranges, refuse, told
from holdfast.cli.spool.session import is_open_elsewhere as is_open
from holdfast.core.refusal import Refused
from holdfast.spool.disk import RealDisk
from holdfast.spool.log import segments_of
from holdfast.spool.names import Place
from holdfast.spool.recover import Verdict
from holdfast.spool.verify import Report
from holdfast.spool.verify import verify as examine
from holdfast.spool.whole import read_released, unavailable, write_released

SAYS = {
    Verdict.WHOLE: "whole",
    Verdict.TORN: "recoverable: a torn tail, as a crash leaves it",
    Verdict.DAMAGED: "damaged",
}
HINTS = {
    Verdict.WHOLE: "",
    Verdict.TORN: "opening the session sets the tail aside into a quarantine file and goes on behind its last valid "
    "record; or do it now: holdfast spool repair {}",
    Verdict.DAMAGED: "the session is read-only and replay stops before the hole; if a copy of the file exists, put it "
    "back; else let replay pass over the hole: holdfast spool repair --release {}",
}
BADS_SHOWN = 20


def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Spool files, also copies that lie elsewhere.")],
) -> None:
    """Read whole files and say what is in them: records, holes by range, the first bad byte.

    Nothing is changed and no lock is taken. A file that somebody writes to may seem torn for a moment.

    Exit code 0: all whole. 1: some not whole: "recoverable" is a torn tail, "damaged" a hole or bad bytes in the
    middle. 2: some could not be read.
    """
    codes = [_verified(file) for file in files]
    raise typer.Exit(max(codes))


def _verified(file: Path) -> int:
    progress = Progress(f"reading {file.name}")
    try:
        report = examine(file, told=progress)
    except OSError as fault:
        progress.end()
        print(f"▲ {file}: cannot be read: {unavailable(fault).says}")
        return UNREADABLE
    progress.end()
    print("\n".join(described(report)))
    return 0 if report.verdict is Verdict.WHOLE else NOT_WHOLE


def described(report: Report) -> list[str]:
    """A few lines that one can act on."""
    is_whole = report.verdict is Verdict.WHOLE
    span = f"records {report.first} to {report.last}" if report.first is not None else "no records"
    old = f", {report.records_v01} without CRC" if report.records_v01 else ""
    said = [
        f"{'✔' if is_whole else '▲'} {report.path}: {SAYS[report.verdict]}",
        f"  {span} ({report.records} valid{old}), acked {report.acked}, durable at least up to {report.mark}",
    ]
    if report.missing:
        said.append(f"  missing: {ranges(report.missing)}")
    if report.first_bad_byte is not None and not is_whole:
        said.append(f"  first bad byte: {report.first_bad_byte}")
        for bad in report.bads[:BADS_SHOWN]:
            said.append(f"  bytes {bad.start} to {bad.stop}: {bad.why}")
        if report.bads_count > BADS_SHOWN:
            said.append(f"  … and {report.bads_count - BADS_SHOWN} more such places")
    if report.verdict is Verdict.TORN and report.records_behind:
        said.append(
            f"  {report.records_behind} valid records behind them belong to the last commit, which no mark covers:"
        )
        said.append("  after a crash they were never spooled; after anything else make a copy of the file first")
    if report.is_superseded:
        said.append("  what follows its last record was written again to the next segment and does not count")
    if hint := HINTS[report.verdict].format(report.path):
        said.append(f"  → {hint}")
    return said


def repair(
    file: SpoolFile,
    release: Annotated[
        bool, typer.Option("--release", help="Let replay pass over the holes of a damaged session.")
    ] = False,
) -> None:
    """Put a session in order after a crash: a torn tail goes to a quarantine file, valid records stay as they are.

    A damaged session is not changed. With --release its holes are written down as known, and replay goes on behind
    them; the receiver will see the gap. The session takes no new records either way.

    Exit code 0: in order now. 1: still damaged, or somebody has it open. 2: cannot be read.
    """
    with told():
        where = place(file)
        if is_open(where):
            refuse(Refused("SP-007", f"session {where.session} is open", "close it first", "SessionLocked"))
        holes = _holes(where)
        if holes and not release:
            hint = "put a copy back if there is one, else say --release"
            refuse(
                Refused("SP-CRASH-002", f"damaged: records {ranges(holes)} are missing or bad", hint, "SessionDamaged")
            )
        if holes:
            known = sorted({*read_released(RealDisk(), where), *holes})
            write_released(RealDisk(), where, known, time.time_ns() // 1_000_000)
            print(f"released: replay passes over records {ranges(holes)}")
            return
        spool = owned(file)
        set_aside, last = spool.metrics().quarantined_records, spool.spooled_sequence
        spool.close()
        did = f"{set_aside} lines of a torn tail were set aside" if set_aside else "there was nothing to do"
        print(f"in order: records up to {last}; {did}")


def _holes(where: Place) -> list[tuple[int, int]]:
    """What is missing or bad in all files of the session; an unreadable stretch without missing records counts, too."""
    found: list[tuple[int, int]] = []
    for segment in segments_of(RealDisk(), where):
        progress = Progress(f"reading {segment.path.name}")
        report = examine(segment.path, told=progress)
        progress.end()
        if report.verdict is Verdict.DAMAGED:
            found += report.missing
            found += [(after, after) for bad in report.bads if bad.missing is None and (after := (bad.after or 0) + 1)]
    return found
