"""`holdfast db rebuild`: the tables made anew from the journal."""

from __future__ import annotations

import asyncio

from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, given, told
from holdfast.core.event import Tip
from holdfast.core.refusal import Refused
from holdfast.engine.rebuild import rebuild as rebuild_all


def rebuild(data: Data = None, config: File = None) -> None:
    """Empty the tables and make them anew from the journal. The node must be stopped.

    Nothing can be lost by it: tables only repeat what the journal says. All of history is read first, and the tables
    are emptied only if all of it is there, in journal and archive. If it is interrupted, the next start (or the next
    rebuild) goes on.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress = Progress("reading")

    async def work() -> Tip | Refused:
        async with opened(settings) as db:
            await db.journal.tip()  # owning would make a journal where there is none
            return await rebuild_all(db.journal, db.tables, db.snapshots, db.policy, progress)

    with told():
        done = asyncio.run(work())
        progress.end()
        tip = given(done)
        print(f"tables rebuilt up to batch {tip.number}, event {tip.last}")
