"""`holdfast db snapshot`: write the state into a file, so that the next start is fast."""

from __future__ import annotations

import asyncio

from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.event import JournalHead
from holdfast.engine.snapshots import snapshot_files


def snapshot(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Fold the journal into a snapshot, so that the next start is fast. A running node is not disturbed.

    The node loads the newest snapshot that its tables have reached, and folds the journal from there. The two newest
    snapshots are kept.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress = ProgressLine("folding")

    async def make_snapshot() -> JournalHead:
        async with open_stores(settings) as stores:
            progress.total = (await stores.journal.tip()).number
            return await snapshot_files.make(stores.snapshots, stores.journal, stores.policy, progress.show_batch)

    with report_errors():
        head = asyncio.run(make_snapshot())
        progress.end()
        file = settings.data / "snapshots" / snapshot_files.file_name(head)
        answer = {"batch": head.number, "event": head.last, "file": str(file)}
        print_outcome(answer, f"snapshot at batch {head.number}, event {head.last}: {file}", as_json=as_json)
