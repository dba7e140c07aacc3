"""How every verb speaks: settings judged at once, errors in one sentence with a hint, exit codes from the one table."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EADDRINUSE
from pathlib import Path
from typing import NoReturn, TextIO, TypeVar, cast

import typer

from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.config import Config, Log, LogFormat, load, why_not_stored
from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.doors.answers import ANSWERS, RESULTS, problem_of

T = TypeVar("T")
BAD_INPUT = 2


def configured(file: Path | None, flags: Mapping[str, object], *, with_stores: bool = False) -> Config:
    """The settings, or every fault in them on standard error and exit code 2; also what journal and tables lack."""
    found = load(file, os.environ, flags)
    if with_stores and isinstance(found, Config) and (no := why_not_stored(found)):
        found = [no]
    if isinstance(found, Config):
        if with_stores:  # whoever only asks a node has nothing to log
            log_as(found.log)
        return found
    for fault in found:
        print(f"holdfast: {fault}", file=sys.stderr)
    raise typer.Exit(BAD_INPUT)


def log_as(log: Log) -> None:
    """Logs go to standard error, as text for people or as JSON for machines."""
    import structlog  # noqa: PLC0415 - it brings rich along, which takes longer than most answers

    level = logging.getLevelNamesMapping()[log.level.upper()]
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = structlog.dev.ConsoleRenderer(colors=has_colours)
    shape = structlog.processors.JSONRenderer() if log.format is LogFormat.JSON else text
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            shape,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Unbreakable())),
    )


class Unbreakable:
    """Standard error that may be gone or on a full disk: then a line is lost, never the work that it speaks of."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


@contextmanager
def told() -> Iterator[None]:
    """Run what may fail; a no becomes one sentence and its exit code, never a traceback."""
    try:
        yield
    except (Unavailable, Corrupt) as fault:
        problem = problem_of(fault)
        print(f"holdfast: {problem}", file=sys.stderr)
        raise typer.Exit(problem.answer.exit) from None
    except NodeRefused as fault:
        name = f"{fault.name}: " if fault.name in RESULTS else ""
        print(f"holdfast: {name}{_plain(fault)}", file=sys.stderr)
        raise typer.Exit(ANSWERS[fault.name].exit if fault.name in ANSWERS else 1) from None
    except NodeUnreachable as fault:
        print(f"holdfast: {_plain(fault)}\n  is a node up there? start one with: holdfast up", file=sys.stderr)
        raise typer.Exit(ANSWERS["Unavailable"].exit) from None
    except OSError as fault:
        if (says := _of_file_or_port(fault)) is None:
            raise  # a stream's: `main` ends quietly where the reader of what we print has left
        print(f"holdfast: {says}", file=sys.stderr)
        raise typer.Exit(ANSWERS["Unavailable"].exit) from None


def _plain(fault: Exception) -> str:
    """What somebody else's program said, without signs that would steer the terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(fault))


def _of_file_or_port(fault: OSError) -> str | None:
    if fault.errno == EADDRINUSE:
        return f"{fault.strerror} (choose another port, or stop the program that has it)"
    if fault.filename is None:
        return None
    return f"{fault.strerror}: {os.fsdecode(fault.filename)} (check the path, its permissions and the disk's space)"


def given(answer: T | Refused) -> T:
    """The answer, or its refusal in one sentence and the exit code that goes with it."""
    return refuse(answer) if isinstance(answer, Refused) else answer


def refuse(no: Refused) -> NoReturn:
    problem = problem_of(no)
    print(f"holdfast: {problem}", file=sys.stderr)
    raise typer.Exit(problem.answer.exit)


def finding(is_good: bool, what: str, says: str, hint: str = "") -> str:
    """One thing that was looked at, with the glyph that means the same everywhere: ✔ confirmed, ▲ needs a hand."""
    line = f"{'✔' if is_good else '▲'} {what:<12} {says}"
    return f"{line}\n{'':<15}→ {hint}" if hint else line
