"""`holdfast spool verify` and `repair`: whether a file is intact, and how to repair it if not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from holdfast.cli.spool.session import (
    EXIT_NOT_INTACT,
    EXIT_UNREADABLE,
    SpoolFile,
    exit_with,
    format_ranges,
    is_open_elsewhere,
    open_locked,
    paths_of,
    refuse_foreign,
    report_spool_errors,
)
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Refused
from holdfast.spool.channel import read_status
from holdfast.spool.files.atomic_files import as_unavailable
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.losses import Loss
from holdfast.spool.files.names import SessionPaths, paths_of_file
from holdfast.spool.files.ownership import SessionOwner
from holdfast.spool.files.recover import FileVerdict
from holdfast.spool.files.segment_log import list_segments
from holdfast.spool.files.session_markers import read_released, write_released
from holdfast.spool.files.verify import FileReport
from holdfast.spool.files.verify import verify as verify_file

VERDICT_TEXT = {
    FileVerdict.WHOLE: "intact",
    FileVerdict.TORN: "recoverable: a torn tail, as after a crash",
    FileVerdict.DAMAGED: "damaged",
}
HINTS = {
    FileVerdict.WHOLE: "",
    FileVerdict.TORN: (
        "the next open moves the tail to a quarantine file and continues after the last valid record; "
        "to do it now: holdfast spool repair {}"
    ),
    FileVerdict.DAMAGED: (
        "the session is read-only and replay stops before the gap; restore a copy of the file if there is one, "
        "else let replay skip the gap: holdfast spool repair --release {}"
    ),
}
FOREIGN_HINT = (
    "it is another program's, so nothing here changes it; when that program has ended: holdfast spool adopt {}"
)
INVALID_RANGES_SHOWN = 20
NOT_STRICT_SHOWN = 5


def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Spool files; copies in other places, too.")],
    as_json: Json = False,
) -> None:
    """Read whole files and report their records, gaps by range, and the first invalid byte.

    Nothing is changed and no lock is taken. A file that is being written may look torn for a moment.

    Exit code 0: all intact. 1: some are not: "recoverable" is a torn tail, "damaged" a gap or invalid bytes in the
    middle. 2: some could not be read.
    """
    outcomes = [_verify_one(file) for file in files]
    values = [{"file": str(file), "code": each.code, **each.facts} for file, each in zip(files, outcomes, strict=True)]
    print_outcome(values, *(each.text for each in outcomes), as_json=as_json)
    raise typer.Exit(max(each.code for each in outcomes))


class FileOutcome(NamedTuple):
    """One file: its exit code, what to say, and the same for programs."""

    code: int
    text: str
    facts: dict[str, object]


def _verify_one(file: Path) -> FileOutcome:
    progress = ProgressLine(f"reading {file.name}")
    try:
        report = verify_file(file, on_progress=progress.show_bytes)
    except OSError as fault:
        progress.end()
        if damage := _damage_without_file(file):
            text = f"▲ {file}: {VERDICT_TEXT[FileVerdict.DAMAGED]}\n  {damage}"
            return FileOutcome(EXIT_NOT_INTACT, text, {"verdict": "damaged", "damage": damage})
        why = as_unavailable(fault).message
        return FileOutcome(
            EXIT_UNREADABLE, f"▲ {file}: cannot be read: {why}", {"verdict": "unreadable", "damage": why}
        )
    progress.end()
    code = 0 if report.verdict is FileVerdict.WHOLE else EXIT_NOT_INTACT
    return FileOutcome(code, "\n".join(describe_report(report)), _report_facts(report))


def _report_facts(report: FileReport) -> dict[str, object]:
    return {
        "verdict": report.verdict.name.lower(),
        "first": report.first,
        "last": report.last,
        "records": report.records,
        "acked": report.acked,
        "durable_until": report.durable_until,
        "missing": report.missing,
        "first_invalid_byte": report.first_invalid_byte,
    }


def _damage_without_file(file: Path) -> str:
    """SP-LOSS-001: what the markers beside a file say that is gone, or that has a link in its place."""
    paths = paths_of_file(file.absolute())
    try:
        return read_status(RealDisk(), paths).damage if paths is not None else ""
    except OSError:
        return ""


def describe_report(report: FileReport) -> list[str]:
    """The report in a few lines, with what to do."""
    is_intact = report.verdict is FileVerdict.WHOLE
    span = f"records {report.first} to {report.last}" if report.first is not None else "no records"
    old = f", {report.records_v01} without CRC" if report.records_v01 else ""
    lines = [
        f"{'✔' if is_intact else '▲'} {report.path}: {VERDICT_TEXT[report.verdict]}",
        f"  {span} ({report.records} valid{old}), acked {report.acked}, durable at least up to {report.durable_until}",
    ]
    if report.missing:
        lines.append(f"  missing: {format_ranges(report.missing)}")
    if report.first_invalid_byte is not None and not is_intact:
        lines.append(f"  first invalid byte: {report.first_invalid_byte}")
        for invalid in report.invalid_ranges[:INVALID_RANGES_SHOWN]:
            lines.append(f"  bytes {invalid.start} to {invalid.stop}: {invalid.why}")
        if report.invalid_count > INVALID_RANGES_SHOWN:
            lines.append(f"  … and {report.invalid_count - INVALID_RANGES_SHOWN} more such ranges")
    if report.verdict is FileVerdict.TORN and report.records_behind:
        lines.append(
            f"  {report.records_behind} valid records after them belong to the last commit, which was not confirmed:"
        )
        lines.append("  after a crash they were never spooled; after anything else make a copy of the file first")
    if report.not_strict_count:
        places = ", ".join(f"record {sequence} at byte {at}" for sequence, at in report.not_strict[:NOT_STRICT_SHOWN])
        lines.append(f"  {report.not_strict_count} complete lines are not strict JSON: {places}")
        lines.append("  their texts hold bytes that are not UTF-8 or not escaped; they are kept and sent as they are")
    if report.is_growing:
        lines.append("  growing: a program is writing it; what looks like a torn tail may be its next record")
    if report.is_superseded:
        lines.append("  what follows its last record was written again into the next segment and does not count")
    hint = FOREIGN_HINT if report.owner is SessionOwner.FOREIGN and not is_intact else HINTS[report.verdict]
    if hint:
        lines.append(f"  → {hint.format(shlex.quote(str(report.path)))}")
    return lines


def repair(
    file: SpoolFile,
    release: Annotated[bool, typer.Option("--release", help="Let replay skip the gaps of a damaged session.")] = False,
    as_json: Json = False,
) -> None:
    """Repair a session after a crash: a torn tail goes to a quarantine file, valid records stay as they are.

    A damaged session is not changed. With --release its gaps are recorded as released, and replay continues after
    them; the receiver will see the gap. The session accepts no new records either way.

    Exit code 0: repaired. 1: still damaged, or another process has it open. 2: cannot be read.
    """
    with report_spool_errors():
        paths = paths_of(file)
        refuse_foreign(paths)
        if is_open_elsewhere(paths):
            exit_with(Refused("SP-007", f"session {paths.session} is open", "close it first", "SessionLocked"))
        losses = read_status(RealDisk(), paths).losses
        gaps = _gaps(paths, losses)
        if losses and not gaps:
            hint = "its records can be replayed; new evidence goes to a new session"
            exit_with(Refused("SP-LOSS-001", "; ".join(map(str, losses)), hint, "SessionDamaged"))
        if gaps and not release:
            message = f"damaged: records {format_ranges(gaps)} are missing or invalid"
            hint = "restore a copy if there is one, else pass --release"
            exit_with(Refused("SP-CRASH-002", message, hint, "SessionDamaged"))
        if gaps:
            released = sorted({*read_released(RealDisk(), paths), *gaps})
            write_released(RealDisk(), paths, released, now_ms())
            print_outcome({"released": gaps}, f"released: replay skips records {format_ranges(gaps)}", as_json=as_json)
            return
        spool = open_locked(file)
        set_aside, last = spool.metrics().quarantined_records, spool.spooled_sequence
        spool.close()
        outcome = f"{set_aside} lines of a torn tail were quarantined" if set_aside else "there was nothing to do"
        answer = {"last": last, "quarantined": set_aside}
        print_outcome(answer, f"intact: records up to {last}; {outcome}", as_json=as_json)


def _gaps(paths: SessionPaths, losses: Sequence[Loss]) -> list[tuple[int, int]]:
    """Records that are missing or invalid in the session's files, and invalid ranges between records."""
    gaps: list[tuple[int, int]] = []
    for segment in list_segments(RealDisk(), paths):
        progress = ProgressLine(f"reading {segment.path.name}")
        report = verify_file(segment.path, on_progress=progress.show_bytes)
        progress.end()
        if report.verdict is FileVerdict.DAMAGED:
            gaps += report.missing
            gaps += [
                (after, after)
                for invalid in report.invalid_ranges
                if invalid.missing is None
                and (after := (invalid.after or 0) + 1)
                and not _is_within((after, after), report.missing)
            ]
    gaps += [loss.missing for loss in losses if loss.missing is not None and not _is_within(loss.missing, gaps)]
    return gaps


def _is_within(missing: tuple[int, int], gaps: list[tuple[int, int]]) -> bool:
    return any(first <= missing[0] and missing[1] <= last for first, last in gaps)
