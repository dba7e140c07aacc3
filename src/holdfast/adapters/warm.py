"""The warm tier (TIER-001): output bytes in a folder, each file named by its digest, whole or not there at all.

```
{path}/incoming/{anything}.tmp     on its way; what a crash left is removed when bytes are next received
{path}/{2 hex}/{2 hex}/{digest}    held: written, synced, renamed, the folders synced, in that order
```
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha3_256
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.adapters.aged import aged_below
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.result.ids import RESULT
from holdfast.core.values import ZERO_DIGEST, Digest
from holdfast.ports import Aged

if TYPE_CHECKING:
    from hashlib import _Hash

PART_BYTES: Final = 1 << 20
"""How much is in memory at a time."""
ASKED_S: Final = 60.0
"""Bytes that somebody asked for so lately are not swept away: a completion may be on its way that relies on them."""
_TEMP: Final = ".tmp"
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
T = TypeVar("T")


class WarmFolder:
    """Bytes by digest. One process receives at a time: the owner of the journal; any may read."""

    def __init__(self, path: Path) -> None:
        self._path, self._incoming = path, path / "incoming"
        self._is_open, self._opening = False, threading.Lock()
        self._synced: set[Path] = set()
        """Folders known to be durable with all that is in them: what only exists may be of just before a crash."""
        self._settling: set[Digest] = set()
        """Renamed, but not known to be durable: not held yet."""
        self._asked: dict[Digest, float] = {}
        """When somebody last asked whether bytes are held, because a completion is to rely on them; oldest first."""
        self._going: set[Digest] = set()
        """About to be deleted, because nobody had asked for them: who asks now is told that they are not held."""
        self._usage: int | None = None
        self._is_settled = False

    async def open(self) -> None:
        """Make the folder and remove what a crash left on its way; `receive` does it, too, where nobody did."""
        if not self._is_open:
            await _in_thread(self._sweep)

    async def receive(self, announced: tuple[Digest, int] | None = None) -> Arriving:
        """Begin to take bytes. Where digest and size are announced, others than those are never kept."""
        await self.open()
        return Arriving(self._incoming, self._settle, announced)

    async def size(self, digest: Digest) -> int | None:
        self._note_asked(digest)
        if digest in self._going:  # asked after noting: who sweeps says so first, and then looks who has asked
            return None
        return await _in_thread(self._size, digest)

    async def read(self, digest: Digest) -> bytes | None:
        return await _in_thread(self._read, digest)

    async def delete(self, digest: Digest) -> None:
        await _in_thread(self._delete, digest)

    async def sound(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        return await _in_thread(self._sound, digests)

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        return await _in_thread(self._sweep_away, digests)

    async def aged(self, before_ms: int, at: int, most: int) -> tuple[list[Aged], int]:
        return await _in_thread(aged_below, self._path, before_ms, at, most)

    async def usage(self) -> int:
        return await _in_thread(self._measure)

    # ------------------------------------------------------------------------------------ in a thread

    def _sweep(self) -> None:
        with self._opening:  # the second of two waits, and finds it done: what the first receives is no leftover
            if self._is_open:
                return
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            for left in self._incoming.glob(f"*{_TEMP}"):
                left.unlink(missing_ok=True)
            for folder in (self._incoming, self._path, self._path.parent):
                _sync(folder)
            self._is_open = True

    def _settle(self, temp: Path, digest: Digest) -> None:
        """A synced file gets its name; where that cannot be made durable, it is not held.

        What is held already stays held: the same bytes take its place, and whichever a crash leaves is good.
        """
        place = self._home(digest)
        if self._size(digest) is None:
            self._settling.add(digest)
            self._grow(temp.stat().st_size)
        temp.replace(place)
        _sync(place.parent)
        self._settling.discard(digest)

    def _home(self, digest: Digest) -> Path:
        """Where these bytes go; the folders on the way are there and durable."""
        place = place_of(self._path, digest)
        for folder in (place.parent.parent, place.parent):
            if folder not in self._synced:
                folder.mkdir(mode=0o700, exist_ok=True)
                _sync(folder)
                _sync(folder.parent)
                self._synced.add(folder)
        return place

    def _size(self, digest: Digest) -> int | None:
        """Only what is durable counts: somebody is going to let go of the bytes because of it."""
        if len(digest) != len(ZERO_DIGEST):
            return None
        try:
            seen = place_of(self._path, digest).stat()
        except FileNotFoundError:
            return None
        if digest in self._settling:  # asked after looking: it is put there before the file gets its name
            return None
        if not self._is_settled:
            self._home(digest)
        if seen.st_mtime < time.time() - ASKED_S:
            with suppress(OSError):  # it is held all the same
                os.utime(place_of(self._path, digest))  # somebody counts on it: it is no stray for a while
        return seen.st_size

    def _read(self, digest: Digest) -> bytes | None:
        place = place_of(self._path, digest)
        try:
            with place.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                hasher, parts = begun(size), []
                for part in iter(lambda: file.read(PART_BYTES), b""):
                    hasher.update(part)
                    parts.append(part)
        except FileNotFoundError:
            return None
        if hasher.digest() != digest:
            raise Corrupt("TIER-001", f"{place} does not hold what its name says", "restore the file from a copy")
        return b"".join(parts)

    def _delete(self, digest: Digest) -> None:
        place = place_of(self._path, digest)
        with suppress(FileNotFoundError):
            self._grow(-place.stat().st_size)
            place.unlink()
            _sync(place.parent)

    def _sound(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """What cannot be read counts as not held: somebody is going to delete another copy because of it."""
        self._settle_all()
        found, root = {}, str(self._path)
        for digest in digests:
            size = _hashed(_name_of(root, digest), digest)
            if size is not None and digest not in self._settling:
                found[digest] = size
        return found

    def _settle_all(self) -> None:
        """What earlier processes renamed is durable after this; what this one renames is when it is held."""
        if not self._is_settled:
            self._sweep()
            _sync_all_below(self._path)
            self._is_settled = True

    def _sweep_away(self, digests: Sequence[Digest]) -> list[Digest]:
        """One sync for all that went: an event is going to say that they are gone, and then nobody looks again."""
        spared, soon, root, gone = [], time.monotonic() - ASKED_S, str(self._path), 0
        try:
            for digest in digests:
                self._going.add(digest)
                if self._asked.get(digest, soon) > soon:
                    self._going.discard(digest)
                    spared.append(digest)
                    continue
                name = _name_of(root, digest)
                with suppress(FileNotFoundError):
                    gone += os.stat(name).st_size  # noqa: PTH116 - thousands at a time
                    os.unlink(name)  # noqa: PTH108
        finally:
            self._going.clear()
        if len(spared) < len(digests):
            _sync_all_below(self._path)
        self._grow(-gone)
        return spared

    def _note_asked(self, digest: Digest) -> None:
        """In the event loop, for every completion: each look is paid for once, however many there are."""
        now = time.monotonic()
        self._asked.pop(digest, None)  # else it would keep its old place
        while self._asked and self._asked[oldest := next(iter(self._asked))] <= now - ASKED_S:
            del self._asked[oldest]
        self._asked[digest] = now

    def _measure(self) -> int:
        """All files once, then what comes and goes."""
        if self._usage is None:
            found = 0
            for folder, _, names in os.walk(self._path):
                for name in names:
                    with suppress(FileNotFoundError):
                        found += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - half the time
            self._usage = found
        return self._usage

    def _grow(self, size: int) -> None:
        with self._opening:
            if self._usage is not None:
                self._usage = max(0, self._usage + size)


class Arriving:
    """One file on its way; its methods may be called by one task, which may be cancelled at any of them."""

    def __init__(
        self, folder: Path, settle: Callable[[Path, Digest], None], announced: tuple[Digest, int] | None = None
    ) -> None:
        self._settle, self._announced = settle, announced
        self._temp = folder / f"{secrets.token_hex(16)}{_TEMP}"
        # The length stands before the bytes in what is hashed (CAN-001): unannounced bytes are hashed at the end.
        self._hasher = begun(announced[1]) if announced is not None else None
        self._file, self._size, self._is_over = -1, 0, False
        self._turn = threading.Lock()
        """A task that was cancelled leaves its thread behind: whoever comes next waits for it."""

    async def write(self, part: bytes) -> None:
        await _in_thread(self._write, part)

    async def keep(self) -> tuple[Digest, int]:
        return await _in_thread(self._keep)

    async def drop(self) -> None:
        """It is done also where whoever asks for it is cancelled, which is when it is mostly asked for."""
        await asyncio.shield(asyncio.ensure_future(_in_thread(self._drop)))

    # ------------------------------------------------------------------------------------ in a thread

    def _write(self, part: bytes) -> None:
        with self._turn:
            self._open()
            self._is_over = True  # unless all of it is written
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if self._hasher is not None:
                self._hasher.update(part)
            self._size += len(part)
            self._is_over = False

    def _keep(self) -> tuple[Digest, int]:
        with self._turn:
            self._open()
            digest = Digest((self._hasher or self._hashed()).digest())
            if self._announced in (None, (digest, self._size)):
                self._is_over = True  # a sync that failed is not tried again
                os.fsync(self._file)
                self._settle(self._temp, digest)
        self._drop()
        return digest, self._size

    def _open(self) -> None:
        """The file, from the first use on. It is not opened before: then nobody has to close it."""
        if self._is_over:
            raise Unavailable("TIER-001", "these bytes were dropped", "send them again")
        if self._file < 0:
            self._file = os.open(self._temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _hashed(self) -> _Hash:
        hasher = begun(self._size)
        for at in range(0, self._size, PART_BYTES):
            hasher.update(os.pread(self._file, PART_BYTES, at))
        return hasher

    def _drop(self) -> None:
        with self._turn:
            self._is_over = True
            if self._file >= 0:
                self._temp.unlink(missing_ok=True)
                os.close(self._file)
                self._file = -1


def place_of(root: Path, digest: Digest) -> Path:
    """Two levels of folders: none of them gets too many entries."""
    name = digest.hex()
    return root / name[:2] / name[2:4] / name


def _name_of(root: str, digest: Digest) -> str:
    """The same as text: building paths would take longer than reading small files."""
    name = digest.hex()
    return f"{root}/{name[:2]}/{name[2:4]}/{name}"


def _hashed(name: str, digest: Digest) -> int | None:
    """The size of a file that hashes to its name, None where it does not or cannot be read."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(handle).st_size
            hasher = begun(size)
            while part := os.read(handle, min(PART_BYTES, size + 1)):
                hasher.update(part)
        finally:
            os.close(handle)
    except OSError:
        return None
    return size if hasher.digest() == digest else None


def _sync_all_below(folder: Path) -> None:
    """Names that came and went in any folder below; one call, however many there are."""
    with suppress(FileNotFoundError):  # nothing was ever kept here
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync_everything(handle)
        finally:
            os.close(handle)


def _sync_everything(handle: int) -> None:
    """The whole file system of an open folder, where the machine can do that; it says when it could not."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(handle) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def begun(size: int) -> _Hash:
    """RES-004: the result digest of `size` bytes that follow, one after the other."""
    tag = f"{RESULT.name}.v{RESULT.versions[-1]}".encode()
    return sha3_256(len(tag).to_bytes(4, "big") + tag + size.to_bytes(4, "big"))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


async def _in_thread(work: Callable[..., T], *args: object) -> T:
    try:
        return await asyncio.to_thread(work, *args)
    except OSError as fault:
        hint = "free some disk space" if fault.errno in _FULL else "check the disk and the folder's permissions"
        raise Unavailable("TIER-001", f"the warm tier: {fault.strerror}", hint) from fault
