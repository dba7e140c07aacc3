"""The inputs of jobs in a folder of the node (JOB-003): large ones are files by digest, small ones rows.

```
{path}/inputs.sqlite               who has uploaded which input, and small inputs (`input_rows`)
{path}/{2 hex}/{digest}            large inputs: written, synced, renamed
{path}/uploads/{account}-{digest}  unfinished uploads; the size of the file is the offset
```
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.sqlite.input_rows import HeldInput, InputRows
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest
from holdfast.core.job.input_ref import INPUT_BYTES_MAX, input_digest, input_hasher
from holdfast.ports import Clock, OutputReader
from holdfast.ports.inputs import AgedInput
from holdfast.system.durable_files import rename_file, sync_file, sync_folder

RULE: Final = "JOB-003"
PART_BYTES: Final = 1 << 20
UPLOADS_MAX: Final = 64
"""Unfinished uploads of one account."""
T = TypeVar("T")
FREE_BYTES_MIN: Final = 1 << 30
"""What uploads leave free: the journal is on the same disk."""


class InputStore:
    """Only the owner of the journal receives inputs; their bytes are verified when they are kept and when read."""

    def __init__(self, path: Path, clock: Clock, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        self._path, self._uploads, self._clock, self._free_min = path, path / "uploads", clock, free_bytes_min
        self._rows, self._lock = InputRows(path), threading.Lock()
        self._waiting: list[HeldInput] = []
        self._holding: asyncio.Future[None] | None = None

    async def offset(self, account: AccountId, digest: Digest) -> tuple[int, bool]:
        return await self._run(self._offset, account, digest)

    async def write(self, account: AccountId, digest: Digest, offset: int, part: bytes) -> Refused | None:
        return await self._run(self._write, account, digest, offset, part)

    async def finish(self, account: AccountId, digest: Digest, size: int) -> Refused | None:
        return await self._run(self._finish, account, digest, size)

    async def put_small(self, account: AccountId, digest: Digest, raw: bytes) -> None:
        """Those of concurrent calls wait for one transaction: the first of them begins it."""
        self._waiting.append((digest, account, len(raw), self._clock.wall_ms(), raw))
        if self._holding is None or self._holding.done():
            self._holding = asyncio.ensure_future(self._hold_waiting())
        await asyncio.shield(self._holding)

    async def _hold_waiting(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            await self._run(self._rows.hold, waiting)

    async def use(self, account: AccountId, digest: Digest) -> int | None:
        return await self._run(self._rows.use, account, digest, self._clock.wall_ms())

    async def open(self, digest: Digest) -> OutputReader | None:
        return await self._run(self._open, digest)

    async def list_aged(self, unnamed_before_ms: int, named_before_ms: int, limit: int) -> Sequence[AgedInput]:
        return await self._run(self._rows.aged, unnamed_before_ms, named_before_ms, limit)

    async def touch(self, inputs: Sequence[AgedInput], now_ms: int) -> None:
        await self._run(self._rows.touch, inputs, now_ms)

    async def delete(self, inputs: Sequence[AgedInput], unnamed_before_ms: int, named_before_ms: int) -> int:
        return await self._run(self._delete, inputs, unnamed_before_ms, named_before_ms)

    async def delete_uploads(self, before_ms: int) -> int:
        return await self._run(self._delete_uploads, before_ms)

    async def _run(self, work: Callable[..., T], *args: object) -> T:
        return await run_file_io(RULE, work, *args)

    # ------------------------------------------------------------------------------------ in a thread

    def _offset(self, account: AccountId, digest: Digest) -> tuple[int, bool]:
        if (size := self._rows.size(account, digest)) is not None:
            return size, True
        try:
            return self._upload_of(account, digest).stat().st_size, False
        except FileNotFoundError:
            return 0, False

    def _write(self, account: AccountId, digest: Digest, offset: int, part: bytes) -> Refused | None:
        with self._lock:
            reached, is_held = self._offset(account, digest)
            if is_held:
                return None
            if reached != offset:
                message = f"the upload is at {reached}, not at {offset}"
                return Refused(RULE, message, "HEAD gives the offset", details=(("offset", str(reached)),))
            if offset + len(part) > INPUT_BYTES_MAX:
                return Refused(RULE, f"an input of more than {INPUT_BYTES_MAX} bytes", name="TooLarge")
            if not offset and (refusal := self._why_not_more(account)):
                return refusal
            with self._upload_of(account, digest).open("ab") as file:
                file.write(part)
        return None

    def _why_not_more(self, account: AccountId) -> Refused | None:
        self._uploads.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(list(self._uploads.glob(f"{_folder_name(account)}-*"))) >= UPLOADS_MAX:
            message = f"{account} has {UPLOADS_MAX} unfinished uploads"
            return Refused(RULE, message, "finish some, or wait until they are deleted", "BackPressure")
        if shutil.disk_usage(self._uploads).free < self._free_min:
            return Refused(RULE, "the node has no room for inputs", "try again later", "BackPressure")
        return None

    def _finish(self, account: AccountId, digest: Digest, size: int) -> Refused | None:
        upload = self._upload_of(account, digest)
        with self._lock:
            if self._rows.size(account, digest) is not None:
                return None
            if not size and input_digest(b"") == digest:  # nothing was written, so there is no file
                self._rows.hold([(digest, account, 0, self._clock.wall_ms(), b"")])
                return None
            try:
                file = os.open(upload, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return Refused(RULE, f"0 of {size} bytes came", "send the rest", details=(("offset", "0"),))
            try:
                found = _hash_file(file, size)
                if found == digest:
                    sync_file(file)
            finally:
                os.close(file)
            if found != digest:
                upload.unlink()
                message = f"the bytes have the digest {found.hex()}, {digest.hex()} was announced"
                return Refused(RULE, message, "begin again", "InvalidParams")
            target = self._path_of(digest)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(target.parent.parent)
            rename_file(upload, target)
            self._rows.hold([(digest, account, size, self._clock.wall_ms(), None)])
        return None

    def _open(self, digest: Digest) -> OutputReader | None:
        if (raw := self._rows.bytes_of(digest)) is not None:
            return _SmallInput(raw) if input_digest(raw) == digest else None
        try:
            return _InputFile(os.open(self._path_of(digest), os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    def _delete(self, inputs: Sequence[AgedInput], unnamed_before_ms: int, named_before_ms: int) -> int:
        with self._lock:
            deleted = self._rows.delete(inputs, unnamed_before_ms, named_before_ms)
            for digest in set(deleted):
                if not self._rows.is_held(digest):
                    self._path_of(digest).unlink(missing_ok=True)
        return len(deleted)

    def _delete_uploads(self, before_ms: int) -> int:
        deleted = 0
        with self._lock, suppress(FileNotFoundError):
            for entry in list(os.scandir(self._uploads)):
                if entry.stat().st_mtime * 1_000 < before_ms:
                    Path(entry.path).unlink(missing_ok=True)
                    deleted += 1
        return deleted

    def _path_of(self, digest: Digest) -> Path:
        name = digest.hex()
        return self._path / name[:2] / name

    def _upload_of(self, account: AccountId, digest: Digest) -> Path:
        return self._uploads / f"{_folder_name(account)}-{digest.hex()}"


def _folder_name(account: AccountId) -> str:
    return sha256(account.encode()).hexdigest()[:32]


def _hash_file(file: int, size: int) -> Digest:
    hasher = input_hasher(size)
    for offset in range(0, os.fstat(file).st_size, PART_BYTES):
        hasher.update(os.pread(file, PART_BYTES, offset))
    return Digest(hasher.digest())


class _SmallInput:
    """Bytes of a row."""

    def __init__(self, raw: bytes) -> None:
        self.size, self._raw = len(raw), raw

    async def read(self, offset: int, length: int) -> bytes:
        return self._raw[offset : offset + length]

    async def close(self) -> None:
        pass


class _InputFile:
    """An open file; its provider hashes what it gets."""

    def __init__(self, file: int) -> None:
        self._file, self.size = file, os.fstat(file).st_size

    async def read(self, offset: int, length: int) -> bytes:
        return await run_file_io(RULE, os.pread, self._file, length, offset)

    async def close(self) -> None:
        os.close(self._file)
