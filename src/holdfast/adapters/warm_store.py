"""The warm tier (TIER-001): output bytes in a folder, by their digest, complete or absent.

```
{path}/incoming/{random}.tmp       an upload; what a crash left is removed before the next one
{path}/{2 hex}/{2 hex}/{digest}    held: written, synced, renamed, the folders synced, in that order
{path}/small.sqlite                small outputs that came in groups (`sqlite.small_blobs`): one sync for a group
{path}/damaged/{time}-{digest}     damaged copies that a good one has replaced (`warm_damage`)
{path}/sent/{2 hex}/{lease}-{digest}   empty: this lease has sent that output (`warm_sent`)
```
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.sqlite.small_blobs import FILE_NAME as SMALL_FILE
from holdfast.adapters.sqlite.small_blobs import SmallBlobs
from holdfast.adapters.warm_damage import FOLDER as DAMAGED_FOLDER
from holdfast.adapters.warm_damage import set_bytes_aside, set_file_aside
from holdfast.adapters.warm_reader import OpenOutput, VerifiedFiles
from holdfast.adapters.warm_scan import merge_scans, scan_aged
from holdfast.adapters.warm_sent import mark_sent, was_sent
from holdfast.adapters.warm_upload import PART_BYTES, Upload
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import ZERO_DIGEST, Digest, LeaseId
from holdfast.core.result import result_hasher
from holdfast.ports import AgedBlob
from holdfast.system.durable_files import TEMP_SUFFIX, rename_file, sync_filesystem, sync_folder

RECENT_USE_S: Final = 15.0
"""Bytes requested within this time are not swept: a completion that relies on them may be on its way."""
_RULE: Final = "TIER-001"


class WarmStore:
    """Bytes by digest. Only the owner of the journal receives uploads; any process may read."""

    def __init__(self, path: Path) -> None:
        self._path, self._incoming = path, path / "incoming"
        self._small, self._verified_files = SmallBlobs(path), VerifiedFiles()
        self._is_open, self._lock = False, threading.Lock()
        self._synced: set[Path] = set()
        """Folders known to be durable: one that merely exists may have been created just before a crash."""
        self._uncommitted: set[Digest] = set()
        """Renamed, but not known to be durable: these do not count as held yet."""
        self._recently_requested: OrderedDict[Digest, float] = OrderedDict()
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

    async def is_held(self, digest: Digest) -> bool:
        return digest not in self._being_deleted and await run_file_io(_RULE, self._is_held, digest)

    async def mark_sent(self, lease_id: LeaseId, digest: Digest) -> None:
        await run_file_io(_RULE, mark_sent, self._path, lease_id, digest)

    async def was_sent(self, lease_id: LeaseId, digest: Digest) -> bool:
        return await run_file_io(_RULE, was_sent, self._path, lease_id, digest)

    async def read(self, digest: Digest) -> bytes | None:
        return await run_file_io(_RULE, self._read, digest)

    async def open_output(self, digest: Digest) -> OpenOutput | None:
        return await run_file_io(_RULE, self._open_output, digest)

    async def delete(self, digest: Digest) -> None:
        await run_file_io(_RULE, self._delete, digest)

    async def verify(self, digests: Sequence[Digest]) -> dict[Digest, int]:
        return await run_file_io(_RULE, self._verify, digests)

    async def find_damaged(self, digests: Sequence[Digest]) -> list[Digest]:
        return await run_file_io(_RULE, self._find_damaged, digests)

    async def requested_lately(self, digests: Sequence[Digest]) -> set[Digest]:
        recent = time.monotonic() - RECENT_USE_S
        return {digest for digest in digests if self._recently_requested.get(digest, recent) > recent}

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
        for digest in blobs:
            self._set_damaged_file_aside(digest)  # it would be read before the row
        self._add_usage(self._small.put_many(blobs))

    def _commit_file(self, temp: Path, digest: Digest) -> None:
        """Rename a synced file to its digest; if that cannot be made durable, the file does not count as held.

        Bytes that are held already stay held: the same bytes replace them, and a crash leaves either copy. Damaged ones
        are set aside.
        """
        path = self._ensure_folders(digest)
        self._set_damaged_file_aside(digest)
        if (raw := self._small.damaged(digest)) is not None:
            set_bytes_aside(self._path, raw, digest)
            self._add_usage(-self._small.delete_many([digest]))
        if self._size(digest) is None:
            self._uncommitted.add(digest)
            self._add_usage(temp.stat().st_size)
        rename_file(temp, path)
        self._uncommitted.discard(digest)

    def _set_damaged_file_aside(self, digest: Digest) -> None:
        name = _path_text(str(self._path), digest)
        if os.path.exists(name) and _verified_size(name, digest) is None:  # noqa: PTH110 - for every small output
            path = Path(name)
            self._add_usage(-path.stat().st_size)
            set_file_aside(self._path, path, digest)

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

    def _is_held(self, digest: Digest) -> bool:
        if path_of(self._path, digest).exists():
            return digest not in self._uncommitted
        return self._small.size(digest, 0) is not None

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
        if hasher.digest() == digest:
            return b"".join(parts)
        if (raw := self._small.read(digest)) is not None:
            return raw
        raise Corrupt("TIER-001", f"the content of {path} does not match its name", "restore the file from a copy")

    def _open_output(self, digest: Digest) -> OpenOutput | None:
        path = path_of(self._path, digest)
        try:
            if (opened := self._verified_files.open(str(path), digest)) is not None:
                return opened
        except FileNotFoundError:
            raw = self._small.read(digest)
            return OpenOutput(len(raw), raw) if raw is not None else None
        if (raw := self._small.read(digest)) is not None:
            return OpenOutput(len(raw), raw)
        raise Corrupt("TIER-001", f"the content of {path} does not match its name", "restore the file from a copy")

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

    def _find_damaged(self, digests: Sequence[Digest]) -> list[Digest]:
        """Either copy counts. Nothing on the disk is changed: this also runs beside a node."""
        root = str(self._path)
        return [
            digest
            for digest in digests
            if _is_damaged_file(_path_text(root, digest), digest) or self._small.damaged(digest) is not None
        ]

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
        requested = self._recently_requested
        while requested and requested[oldest := next(iter(requested))] <= now - RECENT_USE_S:
            del requested[oldest]
        requested[digest] = now
        requested.move_to_end(digest)

    def _measure(self) -> int:
        """Add up all files once; afterwards count what is added and deleted."""
        if self._usage is None:
            total = 0
            for folder, _, names in os.walk(self._path):
                for name in names:
                    if name.startswith(SMALL_FILE) or folder.endswith(DAMAGED_FOLDER):
                        continue
                    with suppress(FileNotFoundError):
                        total += os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - half the time
            self._usage = total + self._small.usage()
        return self._usage

    def _add_usage(self, size: int) -> None:
        with self._lock:
            if self._usage is not None:
                self._usage = max(0, self._usage + size)


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


def _is_damaged_file(name: str, digest: Digest) -> bool:
    """Whether there is such a file, and it cannot be read or does not hash to its name."""
    return _verified_size(name, digest) is None and os.path.exists(name)  # noqa: PTH110 - as `_path_text`


def _sync_tree(folder: Path) -> None:
    """Make the names in all folders below durable, in one call."""
    with suppress(FileNotFoundError):  # nothing was ever kept here
        sync_filesystem(folder)
