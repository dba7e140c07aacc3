"""Outputs that only the archive holds, for readers of this node (RES-009): fetched once, checked, served from a file.

A fetch costs the operator money and the node KZG work: it needs a key, and a budget of bytes an hour bounds it. What
was fetched stays in a folder for a while, since a client that resumes or samples asks again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest
from holdfast.core.result.model import Result
from holdfast.ports import OutputReader
from holdfast.workers.archive.fetch_result import WantedResult

KEPT_BYTES_MAX: Final = 512 << 20
"""What was fetched and is kept; the oldest goes first. One output may be larger."""
FETCHES_AT_ONCE: Final = 2
HOUR_MS: Final = 3_600_000
_log = structlog.get_logger()
ReadArchive = Callable[[WantedResult], AsyncIterator[bytes]]


class FetchBudget:
    """How many bytes may be fetched: full after an hour without fetches, and refilled evenly; 0 is no limit."""

    def __init__(self, bytes_per_hour: int, now_ms: Callable[[], int]) -> None:
        self._rate, self._now_ms = bytes_per_hour, now_ms
        self._left, self._at_ms = float(bytes_per_hour), now_ms()

    def take(self, size: int) -> Refused | None:
        """One output may be larger than the budget; then the next one waits the longer."""
        if not self._rate:
            return None
        now_ms = self._now_ms()
        self._left = min(float(self._rate), self._left + self._rate * max(0, now_ms - self._at_ms) / HOUR_MS)
        self._at_ms = now_ms
        if self._left <= 0:
            wait_s = int(-self._left * HOUR_MS / self._rate / 1_000) + 1
            message = f"this node fetches at most {self._rate} bytes an hour from its archive"
            return Refused("RES-009", message, f"try again in {wait_s} s, or fetch it by its locator", "RateLimited")
        self._left -= size
        return None


class ArchivedOutputs:
    """The outputs of one node's archive."""

    def __init__(self, read: ReadArchive, folder: Path, budget: FetchBudget) -> None:
        self._read, self._folder, self._budget = read, folder, budget
        self._kept: OrderedDict[Digest, int] = OrderedDict()
        self._fetching: dict[Digest, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(FETCHES_AT_ONCE)
        self._is_clean = False
        self.served = 0
        """Outputs that were fetched from the archive."""

    async def open(self, wanted: WantedResult) -> OutputReader | Refused | None:
        """None where no blob has the result."""
        lock = self._fetching.setdefault(wanted.digest, asyncio.Lock())
        try:
            async with lock:  # whoever asks for the same bytes waits for one fetch
                return await self._open_kept(wanted) or await self._fetch(wanted)
        finally:
            if not lock.locked():
                self._fetching.pop(wanted.digest, None)

    async def _open_kept(self, wanted: WantedResult) -> OutputReader | None:
        if wanted.digest not in self._kept:
            return None
        self._kept.move_to_end(wanted.digest)
        return await asyncio.to_thread(_open_file, self._path(wanted.digest), wanted.size)

    async def _fetch(self, wanted: WantedResult) -> OutputReader | Refused | None:
        async with self._slots:
            if refusal := self._budget.take(wanted.size):
                return refusal
            await asyncio.to_thread(self._prepare_folder)
            part = self._folder / f"{secrets.token_hex(8)}.part"
            try:
                with part.open("xb") as sink:
                    is_there = await self._write(wanted, sink)
                if not is_there:
                    return None
                part.replace(self._path(wanted.digest))
            finally:
                part.unlink(missing_ok=True)
        self.served += 1
        _log.info("output_fetched", task_id=wanted.task_id.hex(), bytes=wanted.size)
        self._kept[wanted.digest] = wanted.size
        opened = await self._open_kept(wanted)
        self._drop_oldest()
        return opened

    async def _write(self, wanted: WantedResult, sink: BinaryIO) -> bool:
        """Whether anything came; Corrupt where it is not the result, and then the file is never opened."""
        is_there = False
        async with aclosing(self._read(wanted)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                is_there = True
                await asyncio.to_thread(sink.write, piece)
        return is_there

    def _drop_oldest(self) -> None:
        while len(self._kept) > 1 and sum(self._kept.values()) > KEPT_BYTES_MAX:
            oldest, _ = self._kept.popitem(last=False)
            self._path(oldest).unlink(missing_ok=True)  # readers that have it open go on

    def _prepare_folder(self) -> None:
        """What an earlier process fetched is not known to be whole."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_clean:
            for file in self._folder.iterdir():
                file.unlink(missing_ok=True)
            self._is_clean = True

    def _path(self, digest: Digest) -> Path:
        return self._folder / digest.hex()


def wanted_of(result: Result) -> WantedResult:
    return WantedResult(result.task_id, result.result_digest, result.result_size)


class FetchedOutput:
    """Bytes that were checked when they came, in a file that never changes."""

    def __init__(self, handle: int, size: int) -> None:
        self._handle, self.size = handle, size

    async def read(self, offset: int, length: int) -> bytes:
        return await asyncio.to_thread(os.pread, self._handle, length, offset)

    async def close(self) -> None:
        os.close(self._handle)


def _open_file(path: Path, size: int) -> FetchedOutput | None:
    try:
        return FetchedOutput(os.open(path, os.O_RDONLY), size)
    except FileNotFoundError:
        return None
