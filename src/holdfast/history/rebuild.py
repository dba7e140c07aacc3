"""Tables rebuilt from all of history (ENG-004); they are emptied only after all of it was read and checked."""

from __future__ import annotations

from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead, check_follows, head_of
from holdfast.core.policy import Policy
from holdfast.engine.recover import rebuild_tables
from holdfast.history.archive_segments import ProgressCallback
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Files, TableWriter


async def rebuild(
    journal: FullJournal,
    tables: TableWriter,
    files: Files,
    policy: Policy,
    progress: ProgressCallback | None = None,
) -> JournalHead | Refused:
    """Rebuild the tables and return where they are. They stay as they are where a batch is damaged or the node runs."""
    end, trimmed = await journal.acquire(), await journal.trimmed_until()
    if end.number == 0:
        return Refused("ENG-004", "the journal is empty", "there is nothing to rebuild tables from")
    if trimmed:
        return Refused(
            "ENG-004", f"batches 1 to {trimmed} were deleted from the archive", "bring its segments back first"
        )
    head = JournalHead()
    async for batch in journal.read(head.number, end.number):
        check_follows(head, batch)
        head = head_of(batch)
        if progress is not None:
            progress(head)
    return await rebuild_tables(journal, tables, files, policy, progress, is_dropped=True)
