"""`holdfast db check`: everything stored held against everything else, and what to do about what is wrong."""

from __future__ import annotations

import asyncio

import typer

from holdfast.cli.db.opened import Data, File, Progress, opened
from holdfast.cli.speak import configured, finding, told
from holdfast.doors.answers import ANSWERS
from holdfast.engine.check import TRUTH, Finding
from holdfast.engine.check import check as check_all


def check(data: Data = None, config: File = None) -> None:
    """Look for damage in all that is stored. A running node does not notice.

    Folds the whole history once: the hash chain of journal and archive, every event, every large payload, the ledger's
    laws, every snapshot against the fold, the tables row by row and every claimed id. It needs about 200 bytes of
    memory for each row.

    Exit code 0: all is well. 1: something is wrong that can be made again (tables, snapshots). 74: history itself is
    damaged. 75: the store cannot be had.
    """
    settings = configured(config, {"data": data}, with_stores=True)
    progress = Progress("checking")

    async def look() -> list[Finding]:
        async with opened(settings) as db:
            return await check_all(db.journal, db.tables, db.snapshots, db.policy, progress)

    with told():
        findings = asyncio.run(look())
        progress.end()
        for found in findings:
            print(finding(found.is_good, found.name, found.says, found.hint))
        raise typer.Exit(code_of(findings))


def code_of(findings: list[Finding]) -> int:
    bad = {found.name for found in findings if not found.is_good}
    if bad & TRUTH:
        return ANSWERS["Corrupt"].exit
    return ANSWERS["Refused"].exit if bad else 0
