"""`holdfast db`: what an operator does with the stored data, beside a running node or without one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import verb
from holdfast.cli.speak import configured, told

app = verb(no_args_is_help=True, help="Work on the stored data.")


@app.callback()
def _db() -> None:
    """Work on the stored data."""


@app.command()
def snapshot(
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
) -> None:
    """Fold the journal into a snapshot, so that the next start is fast. A running node does not notice.

    The node loads the newest snapshot that its tables have reached, and folds the journal after it.
    """
    settings = configured(None, {"data": data})
    from holdfast.adapters.files import Folder  # noqa: PLC0415
    from holdfast.adapters.sqlite.journal import SqliteJournal  # noqa: PLC0415
    from holdfast.core.event import Tip  # noqa: PLC0415
    from holdfast.engine import snapshot as snapshots  # noqa: PLC0415

    def progress(tip: Tip) -> None:
        if sys.stderr.isatty() and tip.number % 500 == 0:
            print(f"\rfolded up to event {tip.last}", end="", file=sys.stderr, flush=True)

    async def make() -> Tip:
        journal = SqliteJournal(settings.data)
        try:
            return await snapshots.make(Folder(settings.data / "snapshots"), journal, settings.policy, progress)
        finally:
            await journal.close()

    with told():
        tip = asyncio.run(make())
        print(
            f"snapshot at batch {tip.number}, event {tip.last}: {settings.data / 'snapshots' / snapshots.name_of(tip)}"
        )
