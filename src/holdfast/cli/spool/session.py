"""What every `spool` verb begins with: the session that a file belongs to, a line of progress, one way to say no."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer

from holdfast.core.refusal import Corrupt, Refused, Unavailable
from holdfast.spool import SpoolPolicy
from holdfast.spool.disk import Disk, RealDisk
from holdfast.spool.names import Place, place_of
from holdfast.spool.spool import Spool
from holdfast.spool.whole import unavailable

T = TypeVar("T")
NOT_WHOLE: Final = 1
UNREADABLE: Final = 2
EVERY_S: Final = 0.2
MIB: Final = 1 << 20
SpoolFile = Annotated[Path, typer.Argument(metavar="FILE", help="A session's *.spool.jsonl file, any of its segments.")]


def place(file: Path) -> Place:
    """The session of a spool file that lies where it belongs: ROOT/CHANNEL/SESSION.spool.jsonl."""
    found = place_of(file.absolute())
    if found is None or not file.exists():
        refuse(
            Refused("SP-007", f"{file} is not a spool file", "ROOT/CHANNEL/SESSION.spool.jsonl", "NotFound"), UNREADABLE
        )
    return found


def owned(file: Path, policy: SpoolPolicy | None = None) -> Spool:
    """The session, open and locked, without threads: it does what it is told."""
    where = place(file)
    return given(Spool.open(where.channel, where.session, root=where.folder.parent, policy=policy, threads=False))


def is_open_elsewhere(where: Place, disk: Disk | None = None) -> bool:
    """Somebody writes to it now."""
    disk = disk or RealDisk()
    if not where.lock.exists():
        return False
    lock = disk.lock(where.lock)
    if lock is None:
        return True
    disk.unlock(lock)
    return False


def given(answer: T | Refused) -> T:
    return refuse(answer) if isinstance(answer, Refused) else answer


def refuse(no: Refused | Unavailable | Corrupt, code: int = NOT_WHOLE) -> NoReturn:
    print(f"holdfast: {no}", file=sys.stderr)
    raise typer.Exit(code)


@contextmanager
def told() -> Iterator[None]:
    """A disk that says no or a file that contradicts itself becomes one sentence and an exit code."""
    try:
        yield
    except Corrupt as fault:
        refuse(fault, NOT_WHOLE)
    except Unavailable as fault:
        refuse(fault, UNREADABLE)
    except BrokenPipeError:
        raise
    except OSError as fault:
        refuse(unavailable(fault), UNREADABLE)


class Progress:
    """One line that is written over and over, and only for somebody who watches."""

    def __init__(self, doing: str) -> None:
        self._doing, self._next, self._is_shown = doing, time.monotonic() + EVERY_S, False

    def __call__(self, done: int, whole: int) -> None:
        if time.monotonic() >= self._next and sys.stderr.isatty():
            self._next, self._is_shown = time.monotonic() + EVERY_S, True
            share = 100 * done // max(1, whole)
            print(
                f"\r{self._doing}: {done // MIB} of {whole // MIB} MiB, {share} %", end="", file=sys.stderr, flush=True
            )

    def end(self) -> None:
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def ranges(found: list[tuple[int, int]]) -> str:
    """1-3, 7."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
