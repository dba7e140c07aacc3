"""Outputs that are read part by part (RES-009). The whole is hashed first, and none of it fills the memory."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from holdfast.adapters.file_io import run_file_io
from holdfast.adapters.warm_upload import PART_BYTES
from holdfast.core.base.values import Digest
from holdfast.core.result import result_hasher

VERIFIED_S: Final = 600.0
"""How long a file that was hashed is not hashed again, as long as it is not written to: a client that resumes a
download, or reads ranges, asks often."""
VERIFIED_MAX: Final = 1_024
_RULE: Final = "TIER-001"
_FileState = tuple[int, int, int, int]


class OpenOutput:
    """The verified bytes of one output, in a file or in memory. One task reads it, and closes it."""

    def __init__(self, size: int, source: int | bytes) -> None:
        self.size, self._source = size, source

    async def read(self, offset: int, length: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[offset : offset + length]
        return await run_file_io(_RULE, os.pread, self._source, length, offset)

    async def close(self) -> None:
        if isinstance(self._source, int):
            os.close(self._source)
            self._source = b""


class VerifiedFiles:
    """Opens files that hash to their digest, and remembers for a while which of them did."""

    def __init__(self) -> None:
        self._verified: dict[Digest, tuple[_FileState, float]] = {}
        self._lock = threading.Lock()

    def open(self, name: str, digest: Digest) -> OpenOutput | None:
        """None where the file does not hash to its digest; FileNotFoundError where there is none. In a thread."""
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        size = None
        try:
            size = self._verified_size(handle, digest)
        finally:
            if size is None:
                os.close(handle)
        return OpenOutput(size, handle) if size is not None else None

    def _verified_size(self, handle: int, digest: Digest) -> int | None:
        status = os.fstat(handle)
        state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if not self._is_known(digest, state):
            if not _is_intact(handle, status.st_size, digest):
                return None
            self._remember(digest, state)
        return status.st_size

    def _is_known(self, digest: Digest, state: _FileState) -> bool:
        with self._lock:
            known, until = self._verified.get(digest, (None, 0.0))
        return known == state and time.monotonic() < until

    def _remember(self, digest: Digest, state: _FileState) -> None:
        with self._lock:
            self._verified.pop(digest, None)
            while len(self._verified) >= VERIFIED_MAX:
                del self._verified[next(iter(self._verified))]
            self._verified[digest] = (state, time.monotonic() + VERIFIED_S)


def _is_intact(handle: int, size: int, digest: Digest) -> bool:
    hasher = result_hasher(size)
    for offset in range(0, size, PART_BYTES):
        hasher.update(os.pread(handle, PART_BYTES, offset))
    return hasher.digest() == digest
