"""Where the bytes of an output go while they are hashed: memory, or a file that a later call continues (RES-009).

A file appears under its name when it is complete and its digest is right, never before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.core.base.errors import Corrupt
from holdfast.core.result import result_hasher

PART_BYTES: Final = 256 << 10


class OutputSink:
    """Bytes that follow each other, and the digest they must have."""

    def __init__(self, file: BinaryIO, digest: str, size: int) -> None:
        self.digest, self.size, self.received = digest, size, 0
        self._file, self._hasher = file, result_hasher(size)
        self.progress: Callable[[int, int], None] | None = None
        """Told how many bytes of how many have come."""

    def resume(self) -> None:
        """Go on after what an earlier download has left; too much of it is not ours."""
        self._file.seek(0)
        while part := self._file.read(PART_BYTES):
            self._hasher.update(part)
            self.received += len(part)
        if self.received > self.size:
            self.restart()

    def write(self, part: bytes) -> None:
        self.received += len(part)
        self._hasher.update(part)
        self._file.write(part)
        if self.progress is not None:
            self.progress(self.received, self.size)

    def restart(self) -> None:
        """Everything again, from the first byte."""
        self._file.seek(0)
        self._file.truncate()
        self._hasher, self.received = result_hasher(self.size), 0

    @property
    def is_full(self) -> bool:
        return self.received >= self.size

    def check(self) -> None:
        """Raises Corrupt where the bytes are not those of the digest; then they must not be used."""
        if self.received != self.size or self._hasher.hexdigest() != self.digest:
            raise Corrupt("RES-004", "the bytes do not match the digest in the chain", "ask another node")


class MemoryOutput:
    """An output in memory."""

    def __init__(self, digest: str, size: int) -> None:
        self._file = BytesIO()
        self.sink = OutputSink(self._file, digest, size)

    def bytes(self) -> bytes:
        return self._file.getvalue()


class OutputFile:
    """An output on its way to a file; its part keeps what came until the next try."""

    def __init__(self, path: Path, digest: str, size: int) -> None:
        self._path, self._part = path, path.with_name(f".{path.name}.{digest[:16]}.part")
        self._file = self._part.open("ab+")
        self.sink = OutputSink(self._file, digest, size)
        self.sink.resume()

    def finish(self) -> None:
        """Durable, then under its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)

    def discard(self) -> None:
        """It cannot become the output: its bytes are wrong."""
        self._part.unlink(missing_ok=True)

    def close(self) -> None:
        """A part without bytes has nothing to go on from: a refused reader leaves no file behind."""
        self._file.close()
        if not self.sink.received:
            self._part.unlink(missing_ok=True)
