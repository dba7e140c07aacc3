"""The bytes of a job's input (JOB-003): in memory or in a file, with the digest that names them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.core.job.input_ref import INLINE_BYTES_MAX, input_hasher

PART_BYTES: Final = 1 << 20
Input = bytes | Path
"""What can be the input of a job."""


class InputSource:
    """An input that is read in parts, from any place, as often as needed."""

    def __init__(self, given: Input) -> None:
        self._file: BinaryIO = BytesIO(given) if isinstance(given, bytes) else given.open("rb")
        self.size = self._file.seek(0, 2)
        self.digest = self._digest()

    def __enter__(self) -> InputSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def part(self, offset: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(PART_BYTES)

    def _digest(self) -> str:
        hasher = input_hasher(self.size)
        for offset in range(0, self.size, PART_BYTES):
            hasher.update(self.part(offset))
        return hasher.hexdigest()


def inline_input(given: Input | None) -> bytes | None:
    """The bytes, where they are few enough to come with the job; None where there are none, or they are uploaded."""
    if given is None or (isinstance(given, Path) and given.stat().st_size > INLINE_BYTES_MAX):
        return None
    raw = given if isinstance(given, bytes) else given.read_bytes()
    return raw if len(raw) <= INLINE_BYTES_MAX else None
