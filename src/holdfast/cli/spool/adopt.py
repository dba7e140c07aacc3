"""`holdfast spool adopt`: make sessions of another program ours, when no program writes them any more (SP-OWN-001)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli.spool.session import EXIT_NOT_INTACT, exit_with, format_size, paths_of, report_spool_errors
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Refused
from holdfast.spool.files.disk import RealDisk
from holdfast.spool.files.names import SessionPaths
from holdfast.spool.files.ownership import SessionOwner, owner_of
from holdfast.spool.files.session_markers import Adoption
from holdfast.spool.foreign.adoption import Fingerprint, adopt, fingerprint, foreign_sessions

WATCH_S: Final = 5.0
POLL_S: Final = 0.1


def adopt_command(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR|FILE", help="A root with channels' folders, or one session's *.spool.jsonl file."),
    ],
    watch_s: Annotated[float, typer.Option(help="For how long the files are watched, in seconds.", min=0.0)] = WATCH_S,
    as_json: Json = False,
) -> None:
    """Make sessions of another program ours: from then on they can be repaired, compacted, sealed and shipped.

    A program of v0.1 takes no lock, so its files are watched first: one that grows, changes, or is open for writing in
    another process is left alone. End the program before.

    Exit code 0: all adopted. 1: some were not. 2: cannot be read.
    """
    with report_spool_errors():
        sessions = foreign_sessions(path) if path.is_dir() else _one(path)
        if not sessions:
            print_outcome([], f"{path}: there is no session of another program", as_json=as_json)
            return
        print(f"watching {len(sessions)} files for {watch_s:g} s", file=sys.stderr)
        before = [(paths, fingerprint(paths.plain)) for paths in sessions]
        _watch([(paths.plain, seen) for paths, seen in before], watch_s)
        outcomes = [(paths, adopt(paths, seen, now_ms())) for paths, seen in before]
        values = [{"file": str(paths.plain), "refused": _why_refused(each)} for paths, each in outcomes]
        print_outcome(values, *(_describe(paths, each) for paths, each in outcomes), as_json=as_json)
        is_all = all(each["refused"] is None for each in values)
        raise typer.Exit(0 if is_all else EXIT_NOT_INTACT)


def _one(path: Path) -> list[SessionPaths]:
    paths = paths_of(path)
    if owner_of(RealDisk(), paths) is not SessionOwner.FOREIGN:
        exit_with(
            Refused("SP-OWN-001", f"session {paths.session} is ours already", "nothing is to be done", "SessionOurs")
        )
    return [paths]


def _watch(files: list[tuple[Path, Fingerprint]], watch_s: float) -> None:
    """Let the time pass; it ends early when every file has changed."""
    until = time.monotonic() + watch_s
    while time.monotonic() < until and any(fingerprint(path) == seen for path, seen in files):
        time.sleep(min(POLL_S, watch_s))


def _why_refused(adoption: Adoption | Refused) -> str | None:
    return str(adoption) if isinstance(adoption, Refused) else None


def _describe(paths: SessionPaths, adoption: Adoption | Refused) -> str:
    if isinstance(adoption, Refused):
        return f"▲ {paths.plain}: {adoption}"
    return f"✔ {paths.plain}: adopted, {format_size(adoption.size)}, records up to {adoption.sequence}"
