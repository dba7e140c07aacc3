"""Files that hold a secret (SEC-001): private to their owner, no link out of their folder, complete or absent."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import FILE_MODE, FOLDER_MODE, write_once

BYTES_MAX: Final = 1 << 20
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Never through a link that was created after the check, and never blocked by a pipe."""


def read_secret(path: Path) -> bytes:
    """The file's content; Unavailable if another user could have read or written it."""
    with _open_regular(path) as (file, status):
        if status.st_uid not in (os.geteuid(), 0):
            raise _unavailable(path, "belongs to another user", f"chown it to the node's user: {path}")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise _unavailable(
                path, f"others may use it (mode {stat.S_IMODE(status.st_mode):04o})", f"chmod 600 {path}"
            )
        return _read(path, file)


def read_public(path: Path) -> bytes:
    """The content of a file that need not be secret, such as a certificate."""
    with _open_regular(path) as (file, _):
        return _read(path, file)


def write_new(path: Path, raw: bytes, mode: int = FILE_MODE) -> bool:
    """Create the file with these bytes, durably; False, and nothing changed, if it exists."""
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        return write_once(path, raw, mode=mode)
    except OSError as fault:
        raise _unavailable(path, f"cannot be written: {fault.strerror}", "check disk space and permissions") from fault


def exists(path: Path) -> bool:
    """True also for a broken link: the name is in use."""
    return path.is_symlink() or path.exists()


@contextmanager
def _open_regular(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    try:
        file = os.open(_resolve_inside_folder(path), _OPEN)
    except OSError as fault:
        raise _unavailable(
            path, f"cannot be read: {fault.strerror}", "check that it exists and who may read it"
        ) from fault
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise _unavailable(path, "is not a file", "use a regular file")
        yield file, status
    finally:
        os.close(file)


def _resolve_inside_folder(path: Path) -> Path:
    """Resolve a link. Mounted secrets are renewed by links within a folder; a link out of it is refused."""
    try:
        folder, real = path.parent.resolve(), path.resolve()
    except RuntimeError as fault:  # a link to itself
        raise _unavailable(path, "is a broken link", "put the file itself there") from fault
    if path.is_symlink() and not real.is_relative_to(folder):
        raise _unavailable(
            path, "is a link that leads out of its folder", "put the file itself there, or use its real path"
        )
    return real


def _read(path: Path, file: int) -> bytes:
    with os.fdopen(file, "rb", closefd=False) as reader:
        raw = reader.read(BYTES_MAX + 1)
    if len(raw) > BYTES_MAX:
        raise _unavailable(path, f"is larger than {BYTES_MAX} bytes", "this is neither a key nor a certificate")
    return raw


def _unavailable(path: Path, problem: str, hint: str) -> Unavailable:
    return Unavailable("SEC-001", f"{path} {problem}", hint)
