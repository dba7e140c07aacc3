"""One upload to the warm tier (TIER-001): written to a temporary file, hashed as it arrives, complete or dropped."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.file_io import run_file_io
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.result import result_hasher
from holdfast.system.durable_files import TEMP_SUFFIX, sync_file

if TYPE_CHECKING:
    from hashlib import _Hash

PART_BYTES: Final = 1 << 20
"""Bytes that are read into memory at a time."""
_RULE: Final = "TIER-001"


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
