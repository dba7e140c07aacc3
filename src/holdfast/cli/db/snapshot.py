"""`holdfast db snapshot`: the state folded into a file, so that the next start is fast."""

from __future__ import annotations

import asyncio

from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, told
from holdfast.core.event import Tip
from holdfast.engine import snapshot as snapshots


def snapshot(data: Data = None, config: File = None) -> None:
    """Fold the journal into a snapshot, so that the next start is fast. A running node does not notice.

    The node loads the newest snapshot that its tables have reached, and folds the journal after it. The two newest
    are kept.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress = Progress("folding")

    async def make() -> Tip:
        async with opened(settings) as db:
            return await snapshots.make(db.snapshots, db.journal, db.policy, progress)

    with told():
        tip = asyncio.run(make())
        progress.end()
        print(
            f"snapshot at batch {tip.number}, event {tip.last}: {settings.data / 'snapshots' / snapshots.name_of(tip)}"
        )
