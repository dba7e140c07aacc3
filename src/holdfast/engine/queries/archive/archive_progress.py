"""How far the archive is: its blobs, and the results that no blob holds yet (ARC-001, BLB-002)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.values import Height
from holdfast.core.result.model import Result, ResultStatus
from holdfast.core.tables import record_from_row
from holdfast.engine.queries.blobs import ArchiveProgress, GetArchiveProgress
from holdfast.engine.queries.source import ReadSource

UNPACKED_MAX: Final = 500
"""Results are counted up to here."""


async def archive_progress(source: ReadSource) -> ArchiveProgress:
    """The state's view, with the results of sealed blocks behind the last one that is in a blob as a whole."""
    progress = await source.query_durable(GetArchiveProgress())
    await source.wait_tables(source.replication_status().tip.last)
    rows, _ = await source.tables.page("result", {}, progress.packed_event, UNPACKED_MAX)
    results = (record_from_row(Result, row) for row in rows)
    heights = [result.height_resolved for result in results if _is_due(result, progress.head)]
    return msgspec.structs.replace(progress, unpacked=len(heights), unpacked_height=min(heights, default=0))


def _is_due(result: Result, head: Height) -> bool:
    is_linked = result.status is not ResultStatus.UNLINKED and 0 < result.height_resolved <= head
    return is_linked and result.result_size > 0
