"""`holdfast db rebuild`: rebuild the tables from the journal."""

from __future__ import annotations

import asyncio

from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import JournalHead
from holdfast.history import rebuild as history_rebuild


def rebuild(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Empty the tables and rebuild them from the journal. The node must be stopped.

    Nothing can be lost: tables only repeat what the journal says. The whole history is read first, and the tables are
    emptied only if journal and archive are complete. If it is interrupted, the next start or the next rebuild
    continues.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress = ProgressLine("reading")

    async def rebuild_tables() -> JournalHead | Refused:
        async with open_stores(settings) as stores:
            # This fails if there is no journal; acquiring it would create one.
            progress.total = (await stores.journal.tip()).number
            return await history_rebuild.rebuild(
                stores.journal, stores.tables, stores.snapshots, stores.policy, progress.show_batch
            )

    with report_errors():
        answer = asyncio.run(rebuild_tables())
        progress.end()
        head = value_or_exit(answer)
        outcome = f"tables rebuilt up to batch {head.number}, event {head.last}"
        print_outcome({"batch": head.number, "event": head.last}, outcome, as_json=as_json)
