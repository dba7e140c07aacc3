"""`holdfast db check`: compare everything that is stored with everything else, and say how to repair what is wrong."""

from __future__ import annotations

import asyncio

import typer

from holdfast.api.error_codes import ERROR_CODES
from holdfast.app.stores import make_warm_store
from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import format_finding, load_settings, report_errors
from holdfast.cli.terminal.tables import print_outcome
from holdfast.history import check as history_check
from holdfast.history.check import IRREPLACEABLE, CheckResult


def check(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Look for damage in everything that is stored. A running node is not disturbed.

    Folds the whole history once and checks the hash chain of journal and archive, every event, every large payload, the
    ledger's invariants, every snapshot, the tables row by row, every claimed id, and every output on the disk. It needs
    about 200 bytes of memory per row.

    Exit code 0: no damage. 1: damage that can be rebuilt (tables, snapshots). 74: history or outputs are damaged. 75:
    the store is not available.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress = ProgressLine("checking")

    async def check_stores() -> list[CheckResult]:
        async with open_stores(settings) as stores:
            progress.total = (await stores.journal.tip()).number
            return await history_check.check(
                stores.journal,
                stores.tables,
                stores.snapshots,
                stores.policy,
                progress.show_batch,
                make_warm_store(settings),
            )

    with report_errors():
        results = asyncio.run(check_stores())
        progress.end()
        lines = [format_finding(each.is_good, each.name, each.message, each.hint) for each in results]
        values = [
            {"name": each.name, "is_good": each.is_good, "message": each.message, "hint": each.hint} for each in results
        ]
        print_outcome(values, *lines, as_json=as_json)
        raise typer.Exit(exit_code_of(results))


def exit_code_of(results: list[CheckResult]) -> int:
    damaged = {result.name for result in results if not result.is_good}
    if damaged & IRREPLACEABLE:
        return ERROR_CODES["Corrupt"].exit
    return ERROR_CODES["Refused"].exit if damaged else 0
