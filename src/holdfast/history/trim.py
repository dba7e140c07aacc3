"""How much of the journal may move into the archive: a start must work without the archive (ENG-004)."""

from __future__ import annotations

import msgspec

from holdfast.core.base.values import BatchNo
from holdfast.core.policy import Policy
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import ProgressCallback
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Files, Tables


class TrimBound(msgspec.Struct, frozen=True):
    """The last batch that the store may trim, and why it keeps the rest."""

    until: BatchNo
    reason: str


async def trim_bound(
    journal: FullJournal,
    tables: Tables,
    files: Files,
    policy: Policy,
    keep: int,
    progress: ProgressCallback | None = None,
) -> TrimBound:
    """The lowest of three: the oldest good snapshot, the tables that go with it, and what the operator keeps.

    A start loads a snapshot that the tables have reached and folds the batches after it. The older of two snapshots
    is the bound, so that the newer one may be damaged. Where there is none, one is made at the tables' batch.
    """
    head, checkpoint = await journal.tip(), await tables.checkpoint()
    if checkpoint.number == 0 or not await snapshot_files.is_in_journal(journal, checkpoint):
        return TrimBound(BatchNo(0), "the tables have not reached this journal: start the node once")
    snapshots = await snapshot_files.list_usable(files, journal, policy)
    if not snapshots:
        snapshots = [await snapshot_files.make(files, journal, policy, progress, checkpoint.number)]
    oldest = snapshots[0].number
    if oldest > checkpoint.number:
        return TrimBound(
            BatchNo(0), f"the tables are at batch {checkpoint.number}, before the oldest snapshot: try later"
        )
    bounds = [
        TrimBound(oldest, f"the oldest snapshot is of batch {oldest}; holdfast db snapshot makes newer ones"),
        TrimBound(BatchNo(max(0, head.number - max(1, keep))), f"the newest {max(1, keep)} batches stay"),
    ]
    return min(bounds, key=lambda each: each.until)
