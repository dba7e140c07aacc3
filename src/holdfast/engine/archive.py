"""How much of the journal may move into the archive: never what a start needs if the archive were gone (ENG-004)."""

from __future__ import annotations

import msgspec

from holdfast.core.policy import Policy
from holdfast.core.values import BatchNo
from holdfast.engine import snapshot
from holdfast.engine.chapters import Progress
from holdfast.engine.longjournal import LongJournal
from holdfast.ports import Files, Tables


class Bound(msgspec.Struct, frozen=True):
    """Up to which batch the store can let go, and what it is that keeps the rest."""

    until: BatchNo
    because: str


async def bound(
    journal: LongJournal, tables: Tables, files: Files, policy: Policy, keep: int, progress: Progress | None = None
) -> Bound:
    """The lowest of three: the oldest good snapshot, the tables that go with it, and what the operator keeps.

    A start loads a snapshot that the tables have reached and folds on from there. The older of two snapshots is the
    bound, so that one may turn out damaged. Where there is none, one is made at the tables' batch.
    """
    tip, checkpoint = await journal.tip(), await tables.checkpoint()
    if checkpoint.number == 0 or not await snapshot.is_in(journal, checkpoint):
        return Bound(BatchNo(0), "the tables have not reached this journal: start the node once")
    tips = await snapshot.good(files, journal, policy)
    if not tips:
        tips = [await snapshot.make(files, journal, policy, progress, checkpoint.number)]
    oldest = tips[0].number
    if oldest > checkpoint.number:
        return Bound(
            BatchNo(0), f"the tables stand at batch {checkpoint.number}, before the oldest snapshot: try later"
        )
    bounds = [
        Bound(oldest, f"the oldest snapshot is of batch {oldest}; holdfast db snapshot makes newer ones"),
        Bound(BatchNo(max(0, tip.number - max(1, keep))), f"the newest {max(1, keep)} batches stay"),
    ]
    return min(bounds, key=lambda each: each.until)
