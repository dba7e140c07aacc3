"""A small, real data folder with everything in it, and what recovery and check say of a copy of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

import msgspec
from tests.core.commands import some_id
from tests.simulation.world import DEVELOPMENT, SimulatedClock, stop_engine

import holdfast.history.archive_segments as segments_module
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, BatchNo, Height
from holdfast.core.escrow.messages import Charge, Finalize, Mint, Refund, Reserve, RollBackSettlements
from holdfast.core.state_digest import digest
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.engine.snapshots import snapshot_files
from holdfast.history.archive_segments import ArchiveEntry
from holdfast.history.check import CheckResult, check
from holdfast.history.full_journal import FullJournal
from holdfast.ports import Row

ALICE, BOB = AccountId("alice"), AccountId("bob")
TRIMMED: Final = BatchNo(20)


class FolderContent(msgspec.Struct, frozen=True):
    """All that a folder says, read in full."""

    entries: list[ArchiveEntry]
    rows: list[tuple[str, Row]]


class StartOutcome(msgspec.Struct, frozen=True):
    """What became of a start: the state it found or why it did not start; and the findings of a check before it."""

    digest: bytes | None
    fault: str
    findings: list[CheckResult]

    @property
    def bad(self) -> dict[str, str]:
        return {found.name: found.message for found in self.findings if not found.is_good}


async def make_folder(folder: Path) -> None:
    """Some seventy events in as many batches, a payload, two snapshots, an archive of a few archive segments."""
    engine = engine_on(folder)
    await engine.start()
    for number in range(1, 11):
        await engine.submit(Mint(some_id(number), ALICE, Amount(100)))
    for number in range(20, 40):
        for command in reservation_commands(number):
            await engine.submit(command)
        if number in (26, 33):
            await engine.wait_tables()
            await snapshot_files.make(AtomicFolder(folder / "snapshots"), engine.journal, DEVELOPMENT)
    await engine.submit(Finalize(Height(30)))
    length, segments_module.BATCHES_MAX = segments_module.BATCHES_MAX, 5  # type: ignore[misc]
    try:
        await engine.journal.trim(TRIMMED)
    finally:
        segments_module.BATCHES_MAX = length  # type: ignore[misc]
    await stop_engine(engine)


def reservation_commands(number: int) -> list[Command]:
    """Reserved for something, then charged, refunded, or charged and rolled back."""
    memo = b"" if number % 3 else (b"large" if number % 2 else b"x") * (1_000 if number % 2 else 3)
    made = Reserve(some_id(number), ALICE, Amount(number), memo)
    height = Height(number)
    if number % 4 == 0:
        return [made, Charge(some_id(number), height, BOB, Amount(number // 2))]
    if number % 4 == 1:
        return [made, Refund(some_id(number), height)]
    if number % 4 == 2:
        return [made, Charge(some_id(number), height, BOB, Amount(1)), RollBackSettlements(Height(number - 1))]
    return [made]


def engine_on(folder: Path) -> Engine:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tables = SqliteTables(folder)
    return Engine(journal_of(folder), tables, AtomicFolder(folder / "snapshots"), SimulatedClock(), DEVELOPMENT)


def journal_of(folder: Path) -> FullJournal:
    return FullJournal(SqliteJournal(folder), AtomicFolder(folder / "archive"))


async def check_and_start(folder: Path) -> StartOutcome:
    """Check first, which changes nothing; then start as a node would, up to where it would write."""
    journal, tables, snapshots = journal_of(folder), SqliteTables(folder), AtomicFolder(folder / "snapshots")
    try:
        findings = await run_check(journal, tables, snapshots)
        try:
            await journal.acquire()
            found = await recover(journal, tables, snapshots, DEVELOPMENT)
            return StartOutcome(digest(found.state), "", findings)
        except (Corrupt, Unavailable) as fault:
            return StartOutcome(None, str(fault), findings)
    finally:
        await tables.close()
        await journal.close()


async def run_check(journal: FullJournal, tables: SqliteTables, snapshots: AtomicFolder) -> list[CheckResult]:
    try:
        return await check(journal, tables, snapshots, DEVELOPMENT)
    except (Corrupt, Unavailable) as fault:
        return [CheckResult("store", False, str(fault))]


async def read_folder(folder: Path) -> FolderContent:
    """Every batch, payload, row and claim."""
    journal, tables = journal_of(folder), SqliteTables(folder)
    try:
        entries = [entry async for entry in journal.entries(BatchNo(0))]
        rows = [(table, row) async for _, table, lines in tables.dump() for row in lines]
        return FolderContent(entries, sorted(rows, key=repr))
    finally:
        await tables.close()
        await journal.close()


def copy_folder(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def run_check_and_start(folder: Path) -> StartOutcome:
    return asyncio.run(check_and_start(folder))
