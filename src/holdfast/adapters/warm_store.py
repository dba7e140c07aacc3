"""The warm tier (TIER-001): output bytes in a folder, by their digest, complete or absent.

```
{path}/incoming/{random}.tmp       an upload; what a crash left is removed before the next one
{path}/{2 hex}/{2 hex}/{digest}    held: written, synced, renamed, the folders synced, in that order
{path}/small.sqlite                small outputs that came in groups (`sqlite.small_blobs`): one sync for a group
```
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha3_256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.sqlite.small_blobs import FILE_NAME as SMALL_FILE
from holdfast.adapters.sqlite.small_blobs import SmallBlobs
from holdfast.adapters.warm_scan import merge_scans, scan_aged
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import ZERO_DIGEST, Digest
from holdfast.core.result.ids import RESULT
from holdfast.ports import AgedBlob
from holdfast.system.durable_files import TEMP_SUFFIX, rename_file, sync_file, sync_filesystem, sync_folder

if TYPE_CHECKING:
    from hashlib import _Hash

PART_BYTES: Final = 1 << 20
"""Bytes that are read into memory at a time."""
RECENT_USE_S: Final = 60.0
"""Bytes requested within this time are not swept: a completion that relies on them may be on its way."""
_RULE: Final = "TIER-001"


class WarmStore:
    """Bytes by digest. Only the owner of the journal receives uploads; any process may read."""

    def __init__(self, path: Path) -> None:
        self._path, self._incoming = path, path / "incoming"
        self._small = SmallBlobs(path)
        self._is_open, self._lock = False, threading.Lock()
        self._synced: set[Path] = set()
        """Folders known to be durable: one that merely exists may have been created just before a crash."""
        self._uncommitted: set[Digest] = set()
        """Renamed, but not known to be durable: these do not count as held yet."""
        self._recently_requested: dict[Digest, float] = {}
        """When the size of held bytes was last requested, for a completion that relies on them; oldest first."""
        self._being_deleted: set[Digest] = set()
        """About to be deleted, since they were not requested lately: from now on they do not count as held."""
        self._usage: int | None = None
        self._is_tree_synced = False

    async def open(self) -> None:
        """Create the folder and remove unfinished uploads of a crash; `receive` does so as well, if it was not done."""
        if not self._is_open:
            await run_file_io(_RULE, self._remove_leftovers)

    async def receive(self, announced: tuple[Digest, int] | None = None) -> Upload:
        """Begin an upload. If digest and size are announced, bytes that differ are never kept."""
        await self.open()
        return Upload(self._incoming, self._commit_file, announced)

    async def put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        """Hold these small outputs, durable when this returns, with one sync for all. The caller has hashed them."""
        for digest in blobs:
            self._record_request(digest)
        await self.open()
        await run_file_io(_RULE, self._put_many, blobs)

    async def size(self, digest: Digest) -> int | None:
        self._record_request(digest)
        # Checked after the request is recorded: a sweep adds a digest here before it reads the requests.
        if digest in self._being_deleted:
            return None
        return await run_file_io(_RULE, self._size, digest)

    async def read(self, digest: Digest) -> bytes | None:
        return await run_file_io(_RULE, self._read, digest)

    async def delete(self, digest: Digest) -> None:
        await run_file_io(_RULE, self._delete, digest)

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        return await run_file_io(_RULE, self._verify, digests)

    async def sweep(self, digests: Sequence[Digest]) -> list[Digest]:
        return await run_file_io(_RULE, self._delete_unrequested, digests)

    async def list_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        return await run_file_io(_RULE, self._list_aged, before_ms, position, scan_max)

    async def usage(self) -> int:
        return await run_file_io(_RULE, self._measure)

    # ------------------------------------------------------------------------------------ in a thread

    def _remove_leftovers(self) -> None:
        with self._lock:  # a second caller waits and finds it done: an upload of the first must not be removed
            if self._is_open:
                return
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            for leftover in self._incoming.glob(f"*{TEMP_SUFFIX}"):
                leftover.unlink(missing_ok=True)
            for folder in (self._incoming, self._path, self._path.parent):
                sync_folder(folder)
            self._is_open = True

    def _put_many(self, blobs: Mapping[Digest, bytes]) -> None:
        self._add_usage(self._small.put_many(blobs))

    def _commit_file(self, temp: Path, digest: Digest) -> None:
        """Rename a synced file to its digest; if that cannot be made durable, the file does not count as held.

        Bytes that are held already stay held: the same bytes replace them, and a crash leaves either copy.
        """
        path = self._ensure_folders(digest)
        if self._size(digest) is None:
            self._uncommitted.add(digest)
            self._add_usage(temp.stat().st_size)
        rename_file(temp, path)
        self._uncommitted.discard(digest)

    def _ensure_folders(self, digest: Digest) -> Path:
        """The path of these bytes; its folders exist and are durable."""
        path = path_of(self._path, digest)
        for folder in (path.parent.parent, path.parent):
            if folder not in self._synced:
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_folder(folder)
                sync_folder(folder.parent)
                self._synced.add(folder)
        return path

    def _size(self, digest: Digest) -> int | None:
        """Only durable bytes count: the caller is going to delete another copy because of it."""
        if len(digest) != len(ZERO_DIGEST):
            return None
        try:
            status = path_of(self._path, digest).stat()
        except FileNotFoundError:
            return self._small.size(digest, int((time.time() - RECENT_USE_S) * 1_000))
        if digest in self._uncommitted:  # checked after `stat`: it is added before the file is renamed
            return None
        if not self._is_tree_synced:
            self._ensure_folders(digest)
        if status.st_mtime < time.time() - RECENT_USE_S:
            with suppress(OSError):  # the bytes are held in any case
                os.utime(path_of(self._path, digest))  # a completion relies on it: it is not an orphan for a while
        return status.st_size

    def _read(self, digest: Digest) -> bytes | None:
        path = path_of(self._path, digest)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                hasher, parts = result_hasher(size), []
                for part in iter(lambda: file.read(PART_BYTES), b""):
                    hasher.update(part)
                    parts.append(part)
        except FileNotFoundError:
            return self._small.read(digest)
        if hasher.digest() != digest:
            raise Corrupt("TIER-001", f"the content of {path} does not match its name", "restore the file from a copy")
        return b"".join(parts)

    def _delete(self, digest: Digest) -> None:
        path = path_of(self._path, digest)
        with suppress(FileNotFoundError):
            self._add_usage(-path.stat().st_size)
            path.unlink()
            sync_folder(path.parent)
        self._add_usage(-self._small.delete_many([digest]))

    def _list_aged(self, before_ms: int, position: int, scan_max: int) -> tuple[list[AgedBlob], int]:
        return merge_scans(
            scan_aged(self._path, before_ms, position, scan_max), self._small.scan_aged(before_ms, position, scan_max)
        )

    def _verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        """Bytes that cannot be read do not count as held: the caller is going to delete another copy."""
        self._sync_existing()
        sizes, root = {}, str(self._path)
        for digest in digests:
            size = _verified_size(_path_text(root, digest), digest)
            if size is None:
                size = self._verified_small(digest)
            if size is not None and digest not in self._uncommitted:
                sizes[digest] = size
        return sizes

    def _verified_small(self, digest: Digest) -> int | None:
        try:
            raw = self._small.read(digest)
        except (Corrupt, Unavailable):
            return None
        return None if raw is None else len(raw)

    def _sync_existing(self) -> None:
        """Make the files of earlier processes durable; files of this process are durable once they are held."""
        if not self._is_tree_synced:
            self._remove_leftovers()
            _sync_tree(self._path)
            self._is_tree_synced = True

    def _delete_unrequested(self, digests: Sequence[Digest]) -> list[Digest]:
        """Delete files with one sync for all: the event that confirms the deletion is final."""
        in_use, recent, root, freed = [], time.monotonic() - RECENT_USE_S, str(self._path), 0
        try:
            for digest in digests:
                self._being_deleted.add(digest)
                if self._recently_requested.get(digest, recent) > recent:
                    self._being_deleted.discard(digest)
                    in_use.append(digest)
                    continue
                name = _path_text(root, digest)
                with suppress(FileNotFoundError):
                    freed += os.stat(name).st_size  # noqa: PTH116 - thousands at a time
                    os.unlink(name)  # noqa: PTH108
            freed += self._small.delete_many(list(self._being_deleted))
        finally:
            self._being_deleted.clear()
        if len(in_use) < len(digests):
            _sync_tree(self._path)
        self._add_usage(-freed)
        return in_use

    def _record_request(self, digest: Digest) -> None:
        """Runs in the event loop for every completion: each expired request is removed once."""
        now = time.monotonic()
        self._recently_requested.pop(digest, None)  # so that it moves to the end
        while (
            self._recently_requested
            and self._recently_requested[oldest := next(iter(self._recently_requested))] <= now - RECENT_USE_S
        ):
            del self._recently_requested[oldest]
        self._recently_requested[digest] = now

    def _measure(self) -> int:
        """Add up all files once; afterwards count what is added and deleted."""
        if self._usage is None:
            total = 0
            for folder, _, names in os.walk(self._path):
                for name in names:
                    if name.startswith(SMALL_FILE):
                        continue
                    with suppress(FileNotFoundError):
                        total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - half the time
            self._usage = total + self._small.usage()
        return self._usage

    def _add_usage(self, size: int) -> None:
        with self._lock:
            if self._usage is not None:
                self._usage = max(0, self._usage + size)


class Upload:
    """One upload; its methods are called by one task, which may be cancelled in any of them."""

    def __init__(
        self, folder: Path, commit_file: Callable[[Path, Digest], None], announced: tuple[Digest, int] | None = None
    ) -> None:
        self._commit_file, self._announced = commit_file, announced
        self._temp = folder / f"{secrets.token_hex(16)}{TEMP_SUFFIX}"
        # The hash covers the length before the bytes (CAN-001): without an announced size it is computed at the end.
        self._hasher = result_hasher(announced[1]) if announced is not None else None
        self._file, self._size, self._is_closed = -1, 0, False
        self._lock = threading.Lock()
        """A cancelled task leaves its thread running: the next call waits for it."""

    async def write(self, part: bytes) -> None:
        await run_file_io(_RULE, self._write, part)

    async def keep(self) -> tuple[Digest, int]:
        return await run_file_io(_RULE, self._keep)

    async def drop(self) -> None:
        """Completes even if the caller is cancelled, which is when it is mostly called."""
        await asyncio.shield(asyncio.ensure_future(run_file_io(_RULE, self._drop)))

    # ------------------------------------------------------------------------------------ in a thread

    def _write(self, part: bytes) -> None:
        with self._lock:
            self._open()
            self._is_closed = True  # until all of it is written
            rest = memoryview(part)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if self._hasher is not None:
                self._hasher.update(part)
            self._size += len(part)
            self._is_closed = False

    def _keep(self) -> tuple[Digest, int]:
        with self._lock:
            self._open()
            digest = Digest((self._hasher or self._hash_written()).digest())
            if self._announced in (None, (digest, self._size)):
                self._is_closed = True  # a sync that failed is not tried again
                sync_file(self._file)
                self._commit_file(self._temp, digest)
        self._drop()
        return digest, self._size

    def _open(self) -> None:
        """Open the file at the first use: an upload that is never used needs no closing."""
        if self._is_closed:
            raise Unavailable("TIER-001", "this upload was dropped", "upload the bytes again")
        if self._file < 0:
            self._file = os.open(self._temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _hash_written(self) -> _Hash:
        hasher = result_hasher(self._size)
        for offset in range(0, self._size, PART_BYTES):
            hasher.update(os.pread(self._file, PART_BYTES, offset))
        return hasher

    def _drop(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._file >= 0:
                self._temp.unlink(missing_ok=True)
                os.close(self._file)
                self._file = -1


def path_of(root: Path, digest: Digest) -> Path:
    """Two levels of folders, so that none gets too many entries."""
    name = digest.hex()
    return root / name[:2] / name[2:4] / name


def _path_text(root: str, digest: Digest) -> str:
    """The same as text: building Path objects would take longer than reading small files."""
    name = digest.hex()
    return f"{root}/{name[:2]}/{name[2:4]}/{name}"


def _verified_size(name: str, digest: Digest) -> int | None:
    """The size of a file that hashes to its name; None if it does not, or cannot be read."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(handle).st_size
            hasher = result_hasher(size)
            while part := os.read(handle, min(PART_BYTES, size + 1)):
                hasher.update(part)
        finally:
            os.close(handle)
    except OSError:
        return None
    return size if hasher.digest() == digest else None


def _sync_tree(folder: Path) -> None:
    """Make the names in all folders below durable, in one call."""
    with suppress(FileNotFoundError):  # nothing was ever kept here
        sync_filesystem(folder)


def result_hasher(size: int) -> _Hash:
    """RES-004: computes the result digest of `size` bytes that follow."""
    tag = f"{RESULT.name}.v{RESULT.versions[-1]}".encode()
    return sha3_256(len(tag).to_bytes(4, "big") + tag + size.to_bytes(4, "big"))
