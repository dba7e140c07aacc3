"""Tables made anew from all of history (ENG-004); they are emptied only once all of it was seen to be there."""

from __future__ import annotations

from holdfast.core.event import Tip, check_follows, tip_of
from holdfast.core.policy import Policy
from holdfast.core.refusal import Refused
from holdfast.engine.chapters import Progress
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.recover import recover
from holdfast.ports import Files, Tables


async def rebuild(
    journal: LongJournal, tables: Tables, files: Files, policy: Policy, progress: Progress | None = None
) -> Tip | Refused:
    """Where the tables stand now. Raises before anything is emptied where a batch is damaged or somebody owns it."""
    end, floor = await journal.own(), await journal.floor()
    if end.number == 0:
        return Refused("ENG-004", "the journal is empty", "there is nothing to make tables from")
    if floor:
        return Refused(
            "ENG-004", f"batches 1 to {floor} were deleted from the archive", "bring its chapters back first"
        )
    tip = Tip()
    async for batch in journal.read(tip.number, end.number):
        check_follows(tip, batch)
        tip = tip_of(batch)
        if progress is not None:
            progress(tip)
    await tables.drop()
    return (await recover(journal, tables, files, policy, progress)).tip
