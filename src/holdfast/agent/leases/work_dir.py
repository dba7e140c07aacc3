"""The work folder: leases that the spool does not hold, since they are large or take long (EVD-006).

```
work/{lease id}/offer      the accepted offer, as JSON; a folder without it is removed
work/{lease id}/output     the output's bytes, where they are too many for the record of the completion, or where
                           another execution might give others
work/instance              which folder this is
```

Each file is replaced atomically: it is complete, or it does not exist. A job of an inline executor has none.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from holdfast.agent.leases.records import AcceptedOffer
from holdfast.core.base.errors import Unavailable
from holdfast.system.durable_files import FOLDER_MODE, lock_file, replace_file, sync_folder, write_once

OFFER, OUTPUT = "offer", "output"
INSTANCE: Final = "instance"
_LOCK: Final = ".lock"
_LEASE_DIR: Final = re.compile(r"([0-9a-f]{2})+")
"""Folders with other names are not ours: an operator put them here, or moved a damaged lease aside."""
T = TypeVar("T")


class ResumedLease(msgspec.Struct, frozen=True):
    """A lease that an earlier process left in the folder."""

    offer: AcceptedOffer
    has_output: bool


class WorkDir:
    """One folder per lease, for one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1
        self.instance = b""
        """Tells this folder from every other one, also from a copy of it (RCV-002); known once it is open."""

    def open(self) -> list[ResumedLease]:
        """Lock the folder and read its leases. Unavailable where another process has the lock or the disk fails."""
        try:
            self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            sync_folder(self._path.parent)
            self._take_lock()
            self.instance = self._read_instance()
            folders = sorted(
                entry for entry in self._path.iterdir() if _LEASE_DIR.fullmatch(entry.name) and entry.is_dir()
            )
            return [lease for folder in folders if (lease := self._load(folder)) is not None]
        except OSError as fault:
            raise _as_unavailable(fault) from fault

    def _read_instance(self) -> bytes:
        """A copied file has another inode."""
        file = self._path / INSTANCE
        if not file.exists():  # an agent with a full disk starts again, too
            write_once(file, os.urandom(16).hex().encode())
        return file.read_bytes()[:32] + file.stat().st_ino.to_bytes(8, "big")

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def store_offer(self, offer: AcceptedOffer) -> None:
        """Durable when this returns; a lease that only this folder holds may be acknowledged only then."""
        await _run_to_completion(self._store_offer, offer)

    def folder_of(self, lease_id: bytes) -> Path:
        """Where the files of a lease are, once its offer is stored."""
        return self._folder(lease_id)

    async def store_output(self, lease_id: bytes, output: bytes) -> None:
        await _run_to_completion(replace_file, self._folder(lease_id) / OUTPUT, output)

    async def read_output(self, lease_id: bytes) -> bytes:
        return await _run_to_completion((self._folder(lease_id) / OUTPUT).read_bytes)

    async def remove(self, lease_id: bytes) -> None:
        """Delete all files of a lease, the offer first: after a crash the rest does not look like unfinished work."""
        await _run_to_completion(_remove_dir, self._folder(lease_id))

    # -------------------------------------------------------------------------------------------- on the disk

    def _folder(self, lease_id: bytes) -> Path:
        return self._path / lease_id.hex()

    def _take_lock(self) -> None:
        lock = lock_file(self._path / _LOCK)
        if lock is None:
            message = f"another agent works in {self._path}"
            raise Unavailable("EVD-006", message, "one agent per folder; give this one its own --data")
        self._lock = lock

    def _store_offer(self, offer: AcceptedOffer) -> None:
        folder = self._folder(offer.lease_id)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        replace_file(folder / OFFER, msgspec.json.encode(offer))
        sync_folder(self._path)

    def _load(self, folder: Path) -> ResumedLease | None:
        """A folder without an offer is of a lease that was never acknowledged, or was being removed."""
        names = {entry.name for entry in folder.iterdir()}
        if OFFER not in names:
            _remove_dir(folder)
            return None
        return ResumedLease(_read(folder / OFFER, AcceptedOffer), OUTPUT in names)


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unavailable("EVD-006", f"{path}: {fault}", "the file is damaged; move the folder away") from fault


def _remove_dir(folder: Path) -> None:
    (folder / OFFER).unlink(missing_ok=True)
    if not folder.exists():
        return
    sync_folder(folder)
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()
    sync_folder(folder.parent)


async def _run_to_completion(work: Callable[..., T], *args: object) -> T:
    """In a thread. A caller that is cancelled meanwhile waits until the thread is done with the files."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # seen, so that asyncio does not log it: the caller was cancelled
        raise
    except OSError as fault:
        raise _as_unavailable(fault) from fault


def _as_unavailable(fault: OSError) -> Unavailable:
    return Unavailable("EVD-006", f"{fault.strerror}: {fault.filename}", "check disk space and permissions")
