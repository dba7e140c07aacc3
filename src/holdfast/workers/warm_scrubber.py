"""Reads all output bytes on the disk again, slowly, over some days (TIER-001): damage is found before it is asked for.

A run reads a share of the bytes in the order of their digests. Its position is in a file, so that a node which is
restarted often still gets through all of them. A damaged copy is replaced from the hot store where that has the bytes;
otherwise it stays where it is, is counted and logged, and every read of it is refused by name.
"""

from __future__ import annotations

from typing import Final

import msgspec
import structlog

from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.values import Digest
from holdfast.core.policy import DAY_MS
from holdfast.core.result import result_digest
from holdfast.engine import queries
from holdfast.engine.loop import Engine
from holdfast.ports import SCAN_END, AgedBlob, Blobs, Clock, Files, scan_position
from holdfast.workers.retention.candidates import count_within, result_of

INTERVAL_MS: Final = 60_000
RUN_BYTES_MIN: Final = 1 << 20
FILE_BYTES_MIN: Final = 4_096
"""What a file counts for at least: opening it takes as long as reading this much."""
PAGE: Final = 256
ANY_AGE_MS: Final = 1 << 62
PROGRESS_FILE: Final = "warm.json"
_log = structlog.get_logger()


class ScrubProgress(msgspec.Struct):
    """How far the pass has come, and what is known to be damaged."""

    position: int = 0
    passed_ms: int = 0
    """When the last pass over everything ended; 0 where none has."""
    damaged: set[str] = msgspec.field(default_factory=set)
    """Digests of damaged copies, in hex."""


class WarmScrubber:
    """One for an owner; `pass_days` is how long a pass over all bytes takes."""

    starts_at_once = False
    interval_ms = INTERVAL_MS

    def __init__(self, engine: Engine, blobs: Blobs, files: Files, clock: Clock, pass_days: int) -> None:
        self._engine, self._blobs, self._files, self._clock = engine, blobs, files, clock
        self._pass_ms = pass_days * DAY_MS
        self._is_loaded = False
        self.progress = ScrubProgress()
        self.bytes_read = self.repaired = 0

    async def run_once(self) -> None:
        """Look again at what was damaged, then read the next share of the bytes."""
        if not self._is_loaded:
            self.progress, self._is_loaded = await self._load(), True
        known = [Digest(bytes.fromhex(name)) for name in sorted(self.progress.damaged)]
        self.progress.damaged = {digest.hex() for digest in await self._still_damaged(known)}
        budget = max(RUN_BYTES_MIN, await self._blobs.usage() * INTERVAL_MS // self._pass_ms)
        while budget > 0 and self.progress.position < SCAN_END:
            budget -= await self._read_page(budget)
        if self.progress.position >= SCAN_END:
            self.progress.position, self.progress.passed_ms = 0, self._clock.wall_ms()
        await self._files.replace(PROGRESS_FILE, msgspec.json.encode(self.progress))

    async def _read_page(self, budget: int) -> int:
        """Read some files from the position on; what they count for."""
        listed, reached = await self._blobs.list_aged(ANY_AGE_MS, self.progress.position, PAGE)
        fitting = count_within(map(_cost, listed), budget)
        if fitting < len(listed):
            reached, listed = scan_position(listed[fitting][0]), listed[:fitting]
        for digest in await self._still_damaged([digest for digest, _ in listed]):
            self.progress.damaged.add(digest.hex())
        self.bytes_read += sum(size for _, size in listed)
        self.progress.position = max(reached, self.progress.position + 1)
        return sum(map(_cost, listed))

    async def _still_damaged(self, digests: list[Digest]) -> list[Digest]:
        """Those that are damaged and cannot be repaired."""
        damaged = await self._blobs.find_damaged(digests) if digests else []
        return [digest for digest in damaged if not await self._is_repaired(digest)]

    async def _is_repaired(self, digest: Digest) -> bool:
        """Write the bytes anew where the hot store has them."""
        raw = await self._hot_bytes(digest)
        if raw is not None:
            incoming = await self._blobs.receive((digest, len(raw)))
            try:
                await incoming.write(raw)
                await incoming.keep()
            finally:
                await incoming.drop()
            if not await self._blobs.find_damaged([digest]):
                self.repaired += 1
                _log.warning("damaged_output_repaired", digest=digest.hex())
                return True
        if digest.hex() not in self.progress.damaged:
            _log.error("damaged_output_found", digest=digest.hex(), hint="copy this file of warm/ from a backup")
        return False

    async def _hot_bytes(self, digest: Digest) -> bytes | None:
        for row in await self._engine.tables.find("result", "result_digest", [digest]):
            raw = await queries.hot_output(self._engine, result_of(row))
            if raw is not None and result_digest(raw) == digest:
                return raw
        return None

    async def _load(self) -> ScrubProgress:
        """Begin anew where the file cannot be read: it only saves work."""
        try:
            raw = await self._files.read(PROGRESS_FILE)
            return msgspec.json.decode(raw, type=ScrubProgress) if raw is not None else ScrubProgress()
        except (Corrupt, Unavailable, msgspec.MsgspecError, UnicodeDecodeError) as fault:
            _log.warning("scrub_progress_lost", reason=str(fault))
            return ScrubProgress()


def _cost(listed: AgedBlob) -> int:
    return max(listed[1], FILE_BYTES_MIN)
