"""Outputs that only the archive holds, on a node that does not own the journal (RES-009): it reads and uploads nothing.

A standby has the records of the journal, and fetches like the owner does: hash-checked, for keys alone, within its own
budget. Nothing is opened before the first output is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from holdfast.adapters.archive.make import make_provider
from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.archive_key import ArchiveKey
from holdfast.adapters.kzg.pool import KzgPool
from holdfast.app.archive_workers import ARCHIVE_KEY, fetched_folder
from holdfast.app.stores import make_blob_files
from holdfast.config import Config
from holdfast.core.base.errors import Refused
from holdfast.core.result.model import Result
from holdfast.engine.queries import ReadSource
from holdfast.ports import OutputReader
from holdfast.ports.blobs import ArchiveProvider
from holdfast.workers.archive.archived_outputs import ArchivedOutputs, FetchBudget, wanted_of
from holdfast.workers.archive.fetch_result import WantedResult
from holdfast.workers.archive.recorded_archive import RecordedArchive


class StandbyArchive:
    """The archive of the journal's owner, as its standby reads it."""

    def __init__(self, config: Config, source: ReadSource) -> None:
        self._config, self._source = config, source
        self._kzg = KzgPool(config.archive.kzg_processes)
        self._provider: ArchiveProvider | None = None
        budget = FetchBudget(config.archive.fetch_bytes_per_hour, MachineClock().monotonic_ms)
        self._outputs = ArchivedOutputs(self._read, fetched_folder(config), budget)

    async def open_output(self, result: Result) -> OutputReader | Refused | None:
        """None where no blob has it; Unavailable where the archive cannot be read, or this node has another key."""
        return await self._outputs.open(wanted_of(result))

    async def _read(self, wanted: WantedResult) -> AsyncIterator[bytes]:
        config = self._config
        if self._provider is None:
            self._provider = make_provider(config.archive, config.data)
        path = config.data / ARCHIVE_KEY
        key = ArchiveKey.load(path) if path.exists() else ArchiveKey(b"")  # opens nothing, and its id says so
        files = make_blob_files(config)
        recorded = RecordedArchive(self._source, self._provider, files, self._kzg, key, is_key_kept=lambda: False)
        async with aclosing(recorded.read(wanted)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        await self._kzg.close()
        if self._provider is not None:
            await self._provider.close()
