"""`holdfast chain replay`: compute every header again from the node's journal."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors, value_or_exit
from holdfast.cli.terminal.tables import pluralize, print_json
from holdfast.core.base.errors import Refused

if TYPE_CHECKING:
    from holdfast.history.replay import ReplayReport


def replay(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Fold the journal from genesis and compute every header again: roots, beacon, hash, signature.

    Blocks that were rolled back are computed, too. It works with a running node or a stopped one, with either store
    and with archived batches. The first block that its events do not give is named, with exit code 74.
    """
    from holdfast.cli.db.stores import open_stores  # noqa: PLC0415 - the other verbs of the chain need no store
    from holdfast.history import replay as history_replay  # noqa: PLC0415

    settings = load_settings(config, {"data": data}, with_stores=True)
    progress, start_s = ProgressLine("replaying"), time.monotonic()

    async def replay_journal() -> ReplayReport | Refused:
        async with open_stores(settings) as stores:
            progress.total = (await stores.journal.tip()).number
            return await history_replay.replay(stores.journal, stores.policy, check_signature, progress.show_batch)

    with report_errors():
        try:
            report = value_or_exit(asyncio.run(replay_journal()))
        finally:
            progress.end()
        took_s = time.monotonic() - start_s
        if as_json:
            print_json(_as_values(report))
            return
        blocks = pluralize(report.blocks, "block")
        print(f"the journal gives the chain: {blocks} computed again, {report.orphaned} orphaned")
        print(f"head    {report.height}, {report.hash.hex()}")
        print(f"on it   {pluralize(report.transactions, 'transaction')}")
        print(f"folded  {report.events} events in {report.batches} batches, {took_s:.1f} s")
        for proposer in sorted(report.proposers):
            print(f"signed  {proposer.hex()}")


def _as_values(report: ReplayReport) -> dict[str, Any]:
    values = msgspec.structs.asdict(report)
    return values | {"hash": report.hash.hex(), "proposers": sorted(proposer.hex() for proposer in report.proposers)}
