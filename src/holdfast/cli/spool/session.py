"""What every `spool` verb uses: the session of a file, formats, and errors with the exit codes of this verb."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer

from holdfast.cli.exit_codes import BAD_INPUT, REFUSED
from holdfast.core.base.errors import Corrupt, Refused, Unavailable
from holdfast.spool import SpoolPolicy
from holdfast.spool.channel import list_sessions
from holdfast.spool.files.atomic_files import as_unavailable
from holdfast.spool.files.disk import Disk, RealDisk
from holdfast.spool.files.names import SessionPaths, paths_of_file
from holdfast.spool.files.ownership import SessionOwner, owner_of
from holdfast.spool.spool import Spool

T = TypeVar("T")
EXIT_NOT_INTACT: Final = REFUSED
EXIT_UNREADABLE: Final = BAD_INPUT
SpoolFile = Annotated[Path, typer.Argument(metavar="FILE", help="A session's *.spool.jsonl file, any of its segments.")]


def paths_of(file: Path) -> SessionPaths:
    """The session of a spool file at its place: ROOT/CHANNEL/SESSION.spool.jsonl."""
    paths = paths_of_file(file.absolute())
    if paths is None or not _exists(file, paths):
        exit_with(
            Refused("SP-007", f"{file} is not a spool file", "ROOT/CHANNEL/SESSION.spool.jsonl", "NotFound"),
            EXIT_UNREADABLE,
        )
    return paths


def _exists(file: Path, paths: SessionPaths) -> bool:
    """Also a session of which only its markers are left: it is damaged (SP-LOSS-001)."""
    return file.exists() or (paths.folder.is_dir() and paths.session in list_sessions(RealDisk(), paths.folder))


def refuse_foreign(paths: SessionPaths) -> None:
    """SP-OWN-001: what another program may be writing is not changed."""
    if owner_of(RealDisk(), paths) is SessionOwner.FOREIGN:
        message = f"session {paths.session} is another program's, which may be writing it"
        hint = f"end that program, then: holdfast spool adopt {shlex.quote(str(paths.plain))}"
        exit_with(Refused("SP-OWN-001", message, hint, "SessionForeign"))


def open_locked(file: Path, policy: SpoolPolicy | None = None) -> Spool:
    """The session, opened with its lock and without background threads."""
    paths = paths_of(file)
    refuse_foreign(paths)
    return spool_value_or_exit(
        Spool.open(paths.channel, paths.session, root=paths.folder.parent, policy=policy, threads=False)
    )


def is_open_elsewhere(paths: SessionPaths) -> bool:
    """Whether another process has the session open. It tries the session's lock and releases it at once."""
    disk: Disk = RealDisk()
    if not paths.lock.exists():
        return False
    lock = disk.lock(paths.lock)
    if lock is None:
        return True
    disk.unlock(lock)
    return False


def spool_value_or_exit(answer: T | Refused, code: int = EXIT_NOT_INTACT) -> T:
    return exit_with(answer, code) if isinstance(answer, Refused) else answer


def exit_with(error: Refused | Unavailable | Corrupt, code: int = EXIT_NOT_INTACT) -> NoReturn:
    """Print the error and exit. `spool` has its own codes: 1 not intact, 2 unreadable, as its help says."""
    print(f"holdfast: {error}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def report_spool_errors() -> Iterator[None]:
    """An error of the disk or an inconsistent file becomes one sentence and an exit code."""
    try:
        yield
    except Corrupt as fault:
        exit_with(fault, EXIT_NOT_INTACT)
    except Unavailable as fault:
        exit_with(fault, EXIT_UNREADABLE)
    except BrokenPipeError:
        raise
    except OSError as fault:
        exit_with(as_unavailable(fault), EXIT_UNREADABLE)


def format_ranges(ranges: list[tuple[int, int]]) -> str:
    """`1-3, 7`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def format_size(count: int) -> str:
    """`1.5 MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
