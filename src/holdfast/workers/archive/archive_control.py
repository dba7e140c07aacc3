"""What an operator does with the archive: prune now, read archived blobs back, see what was counted (PRU-001)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.core.archive.messages import VERIFIED, ReportLost
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import Height
from holdfast.core.blob.model import Blob, BlobStatus, all_blobs, live_blob
from holdfast.core.result.model import Result
from holdfast.engine.archive_report import PruneReport, ReadBackFault, ReadBackReport
from holdfast.engine.loop import Engine
from holdfast.ports import OutputReader
from holdfast.workers.archive.archived_outputs import ArchivedOutputs, wanted_of
from holdfast.workers.archive.archiver import Archiver
from holdfast.workers.archive.blob_pruner import BlobPruner
from holdfast.workers.archive.blob_repacker import BlobRepacker
from holdfast.workers.archive.recorded_archive import RecordedArchive
from holdfast.workers.sync.sync_metrics import SyncMetrics

PAGE = 500
AT_ONCE = 8
"""Blobs that an audit reads at a time."""
RecallLost = Callable[[Blob, str], Awaitable[object]]
_log = structlog.get_logger()


class ArchiveControl:
    """The archive of a running owner."""

    def __init__(
        self,
        engine: Engine,
        archiver: Archiver,
        pruner: BlobPruner,
        recorded: RecordedArchive,
        outputs: ArchivedOutputs,
        recall: RecallLost | None = None,
        repacker: BlobRepacker | None = None,
    ) -> None:
        self._engine, self._archiver, self._pruner, self.recorded = engine, archiver, pruner, recorded
        self._outputs, self.recall, self._repacker = outputs, recall, repacker
        """`recall` brings bytes back that are not here any more, from whichever node has them."""
        self.metrics = archiver.metrics
        self.sync_metrics = SyncMetrics()
        """What peers told, and was refused."""
        self.count_lost: Callable[[], int] = int
        """How many blobs no node and no archive has any more."""
        self.audit_report = ReadBackReport(is_done=True)
        """Of the audit that runs, or of the last one."""
        self._audit: asyncio.Task[None] | None = None
        self._recalling = asyncio.Lock()

    async def open_output(self, result: Result) -> OutputReader | Refused | None:
        """RES-009: the bytes of an output that this node does not have any more; None where no blob has them."""
        return await self._outputs.open(wanted_of(result))

    def key_of(self, result: Result) -> tuple[int, bytes]:
        """BLB-003: the id of the archive key, and the key of this result alone."""
        return self.recorded.key_of(result.task_id, result.result_digest)

    async def prune_before(self, height: Height) -> PruneReport:
        """PRU-001: the heights below this one, and why those that stay do."""
        pruned, kept = list[Height](), dict[int, str]()
        for each in [each for each in self._engine.undurable_state.blob_heights if each < height]:
            refusal = await self._pruner.prune(each)
            if refusal is None:
                pruned.append(each)
            else:
                kept[each] = refusal.message
        return PruneReport(pruned, kept)

    def begin_audit(self, sample: int) -> ReadBackReport:
        """Begin to read archived blobs back, unless that is under way: all of them, or about `sample`."""
        if self.audit_report.is_done:
            self.audit_report = ReadBackReport()
            self._audit = asyncio.create_task(self._run_audit(sample, self.audit_report))
        return self.audit_report

    async def close(self) -> None:
        if self._audit is not None:
            self._audit.cancel()
            await asyncio.gather(self._audit, return_exceptions=True)

    async def _run_audit(self, sample: int, report: ReadBackReport) -> None:
        try:
            await self._engine.wait_tables()
            blobs = [blob async for blob in self._archived_blobs()]
            blobs = [*self._lost_blobs(), *blobs[:: max(1, len(blobs) // sample) if sample else 1]]
            report.total = len(blobs)
            for start in range(0, len(blobs), AT_ONCE):
                await asyncio.gather(*(self._audit_blob(blob, report) for blob in blobs[start : start + AT_ONCE]))
        finally:
            report.is_done = True

    async def _audit_blob(self, blob: Blob, report: ReadBackReport) -> None:
        reason, is_repaired = None, False
        try:
            reason = await self._archiver.why_not_held(blob, blob.locator)
            if reason is not None:
                is_repaired = await self._repair(blob, reason)
            elif blob.assurance != VERIFIED or blob.status is BlobStatus.SUSPECT:
                is_better = await self._archiver.record_verified(blob)
                report.upgraded += is_better
        except Unavailable as fault:
            reason = str(fault)  # the archive is away: that says nothing about the blob
        if reason is not None:
            report.faults.append(ReadBackFault(blob.height, blob.number, blob.locator, reason, is_repaired))
        report.checked += 1

    async def _repair(self, blob: Blob, reason: str) -> bool:
        """A record is suspect. Where its bytes are here they are uploaded again, else somebody must be told."""
        live = live_blob(self._engine.undurable_state, blob.height, blob.number)
        if live is not None and not live.blob.is_pruned:
            await self._engine.submit(ReportLost(blob.height, blob.number, reason))
            _log.warning("archive_lost", height=blob.height, index=blob.number, reason=reason)
            return True
        raw = await self._repacker.bytes_of(blob) if self._repacker is not None else None
        if raw is not None and await self._archiver.upload_again(blob, raw):
            if blob.status is BlobStatus.SUSPECT:
                await self._archiver.record_verified(blob)
            _log.warning("archive_repaired", height=blob.height, index=blob.number, reason=reason)
            return True
        if self.recall is not None:
            async with self._recalling:  # a height has several blobs, and comes back as a whole
                return bool(await self.recall(blob, reason))
        _log.error("bytes_lost", height=blob.height, index=blob.number, reason=reason, locator=blob.locator)
        return False

    def _lost_blobs(self) -> list[Blob]:
        """Those that no node and no archive had at an earlier audit: a disk may be back, or a follower."""
        lives = [live.blob for live in all_blobs(self._engine.undurable_state)]
        return [replace(blob) for blob in lives if blob.status is BlobStatus.SUSPECT and blob.is_pruned]

    async def _archived_blobs(self) -> AsyncIterator[Blob]:
        after: object = 0
        while True:
            rows, _ = await self._engine.tables.page("blob", {"status": BlobStatus.ARCHIVED.value}, after, PAGE)
            for row in rows:
                yield msgspec.convert(row, Blob, builtin_types=(bytes,))
            if len(rows) < PAGE:
                return
            after = rows[-1][0]
