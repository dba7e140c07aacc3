"""Files that hold a secret (SEC-001): for their owner alone, no way out of their folder, whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.core.refusal import Unavailable

BYTES_MAX: Final = 1 << 20
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Never through a link that was put there after we looked, and never stuck on a pipe."""


def read_secret(path: Path) -> bytes:
    """What the file holds; Unavailable where anybody else could have read it or put it there."""
    with _opened(path) as (file, found):
        if found.st_uid not in (os.geteuid(), 0):
            raise _no(path, "belongs to somebody else", f"chown it to the node's user: {path}")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise _no(path, f"others may use it (mode {stat.S_IMODE(found.st_mode):04o})", f"chmod 600 {path}")
        return _read(path, file)


def read_public(path: Path) -> bytes:
    """The same for what everybody may know, such as a certificate."""
    with _opened(path) as (file, _):
        return _read(path, file)


def write_new(path: Path, raw: bytes, mode: int = 0o600) -> bool:
    """Make the file durable with these bytes; False, and nothing changed, where there is one already.

    A link instead of a rename: of two processes that make the same file at the same moment, one is told so.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_synced(temp, raw, mode)
            is_new = _link(temp, path)
        finally:
            temp.unlink(missing_ok=True)
        _sync_folder(path.parent)  # also where another process was faster: whoever uses the file may rely on it
    except OSError as fault:
        raise _no(path, f"cannot be written: {fault.strerror}", "check disk space and permissions") from fault
    return is_new


def exists(path: Path) -> bool:
    """Also for a link that leads nowhere: something has the name."""
    return path.is_symlink() or path.exists()


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    try:
        file = os.open(_inside_its_folder(path), _OPEN)
    except OSError as fault:
        raise _no(path, f"cannot be read: {fault.strerror}", "check that it exists and who may read it") from fault
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise _no(path, "is not a file", "name a regular file")
        yield file, found
    finally:
        os.close(file)


def _inside_its_folder(path: Path) -> Path:
    """Where a link leads. Links within a folder are how mounted secrets are renewed; a link out of it is refused."""
    try:
        folder, real = path.parent.resolve(), path.resolve()
    except RuntimeError as fault:  # a link that leads to itself
        raise _no(path, "is a link that leads nowhere", "put the file itself there") from fault
    if path.is_symlink() and not real.is_relative_to(folder):
        raise _no(path, "is a link that leads out of its folder", "put the file itself there, or name the real one")
    return real


def _read(path: Path, file: int) -> bytes:
    with os.fdopen(file, "rb", closefd=False) as reader:
        raw = reader.read(BYTES_MAX + 1)
    if len(raw) > BYTES_MAX:
        raise _no(path, f"is larger than {BYTES_MAX} bytes", "this is no key and no certificate")
    return raw


def _write_synced(path: Path, raw: bytes, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(file, "wb") as writer:
        os.fchmod(writer.fileno(), mode)  # whatever the umask says
        writer.write(raw)
        writer.flush()
        os.fsync(writer.fileno())


def _link(temp: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temp)
    except FileExistsError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _no(path: Path, says: str, hint: str) -> Unavailable:
    return Unavailable("SEC-001", f"{path} {says}", hint)
