"""The work folder: a lease is on disk before it is acknowledged, its output until its verdict is final (EVD-006).

```
work/{lease id}/offer      what was taken, as JSON; without it the folder means nothing
work/{lease id}/output     the bytes that came out
work/{lease id}/outcome    the record that tells it, signed; from here on the output is with the node
```

Each file is there whole or not at all: temp, fsync, rename, fsync of the folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.core.refusal import Unavailable

OFFER, OUTPUT, OUTCOME = "offer", "output", "outcome"
_TEMP: Final = ".tmp"
_LOCK: Final = ".lock"
_LEASE: Final = re.compile(r"([0-9a-f]{2})+")
"""Only folders that are named so are ours: others somebody has put here, or moved aside."""
T = TypeVar("T")


class Taken(msgspec.Struct, frozen=True):
    """A lease as it was offered."""

    lease_id: bytes
    task_id: bytes
    kind: str
    attempt: int
    payload: bytes
    """The job's canonical payload."""
    proof: str
    t_deadline_ms: int
    """By the node's clock; it may have been moved since."""


class Outcome(msgspec.Struct, frozen=True):
    """A lease's end, ready to be spooled: decided once, so that it is told in the same bytes however often."""

    payload_type: str
    payload: dict[str, Any]


class Found(msgspec.Struct, frozen=True):
    """What an earlier process left of a lease."""

    taken: Taken
    has_output: bool
    outcome: Outcome | None


class WorkFolder:
    """One folder per lease, for one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1

    def open(self) -> list[Found]:
        """Take the folder; the leases that are in it. Unavailable where another process has it or the disk fails."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(self._path.parent)
            self._take_lock()
            folders = sorted(entry for entry in self._path.iterdir() if _LEASE.fullmatch(entry.name) and entry.is_dir())
            return [found for folder in folders if (found := self._look_at(folder)) is not None]
        except OSError as fault:
            raise _unavailable(fault) from fault

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def keep_offer(self, taken: Taken) -> None:
        """Durable when this returns: only then may the lease be acknowledged."""
        await _to_its_end(self._begin, taken)

    async def keep_output(self, lease_id: bytes, output: bytes) -> None:
        await _to_its_end(_replace, self._folder(lease_id) / OUTPUT, output)

    async def keep_outcome(self, lease_id: bytes, outcome: Outcome) -> None:
        await _to_its_end(_replace, self._folder(lease_id) / OUTCOME, msgspec.json.encode(outcome))

    async def output(self, lease_id: bytes) -> bytes:
        return await _to_its_end((self._folder(lease_id) / OUTPUT).read_bytes)

    async def remove(self, lease_id: bytes) -> None:
        """Let go of everything; the offer first, so that a crash leaves nothing that looks like work to do."""
        await _to_its_end(_remove, self._folder(lease_id))

    # -------------------------------------------------------------------------------------------- on the disk

    def _folder(self, lease_id: bytes) -> Path:
        return self._path / lease_id.hex()

    def _take_lock(self) -> None:
        self._lock = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            says = f"another agent works in {self._path}"
            raise Unavailable("EVD-006", says, "one agent per folder; give this one its own --data") from None

    def _begin(self, taken: Taken) -> None:
        folder = self._folder(taken.lease_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        _replace(folder / OFFER, msgspec.json.encode(taken))
        _sync(self._path)

    def _look_at(self, folder: Path) -> Found | None:
        """A folder without an offer was never acknowledged, or is on its way out."""
        names = {entry.name for entry in folder.iterdir()}
        if OFFER not in names:
            _remove(folder)
            return None
        outcome = _read(folder / OUTCOME, Outcome) if OUTCOME in names else None
        return Found(_read(folder / OFFER, Taken), OUTPUT in names, outcome)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unavailable("EVD-006", f"{path}: {fault}", "the disk lost what it had; move the folder away") from fault


def _replace(path: Path, raw: bytes) -> None:
    temp = path.with_name(path.name + _TEMP)
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as writer:
        writer.write(raw)
        writer.flush()
        os.fsync(writer.fileno())
    temp.replace(path)
    _sync(path.parent)


def _remove(folder: Path) -> None:
    (folder / OFFER).unlink(missing_ok=True)
    if not folder.exists():
        return
    _sync(folder)
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def _to_its_end(work: Callable[..., T], *args: object) -> T:
    """In a thread, and never left alone with the files: who is cancelled meanwhile waits until it is done."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # whoever cancelled does not want to know
        raise
    except OSError as fault:
        raise _unavailable(fault) from fault


def _unavailable(fault: OSError) -> Unavailable:
    return Unavailable("EVD-006", f"{fault.strerror}: {fault.filename}", "check disk space and permissions")
