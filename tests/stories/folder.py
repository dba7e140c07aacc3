"""A small, real data folder with everything in it, and what recovery and check say of a copy of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

import msgspec
from tests.core.books import some_id
from tests.simulated.world import DEVELOPMENT, SimulatedClock, ended

import holdfast.engine.chapters as chapters_module
from holdfast.adapters.files import Folder
from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.escrow.acts import Charge, Finalize, Mint, Refund, Reserve, RollBack
from holdfast.core.law import Command
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.core.state import digest
from holdfast.core.values import AccountId, Amount, BatchNo, Height
from holdfast.engine import snapshot
from holdfast.engine.chapters import Entry
from holdfast.engine.check import Finding, check
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.loop import Engine
from holdfast.engine.recover import recover
from holdfast.ports import Row

ALICE, BOB = AccountId("alice"), AccountId("bob")
TRIMMED: Final = BatchNo(20)


class Seen(msgspec.Struct, frozen=True):
    """All that a folder says, read in full."""

    entries: list[Entry]
    rows: list[tuple[str, Row]]


class Verdict(msgspec.Struct, frozen=True):
    """What became of a start: the state it found or why it did not start; and the findings of a check before it."""

    digest: bytes | None
    fault: str
    findings: list[Finding]

    @property
    def bad(self) -> dict[str, str]:
        return {found.name: found.says for found in self.findings if not found.is_good}


async def make(folder: Path) -> None:
    """Some seventy events in as many batches, a payload, two snapshots, an archive of a few chapters."""
    engine = engine_on(folder)
    await engine.start()
    for number in range(1, 11):
        await engine.submit(Mint(some_id(number), ALICE, Amount(100)))
    for number in range(20, 40):
        for command in life_of(number):
            await engine.submit(command)
        if number in (26, 33):
            await engine.projector.drain()
            await snapshot.make(Folder(folder / "snapshots"), engine.journal, DEVELOPMENT)
    await engine.submit(Finalize(Height(30)))
    length, chapters_module.BATCHES_MAX = chapters_module.BATCHES_MAX, 5  # type: ignore[misc]
    try:
        await engine.journal.trim(TRIMMED)
    finally:
        chapters_module.BATCHES_MAX = length  # type: ignore[misc]
    await ended(engine)


def life_of(number: int) -> list[Command]:
    """Reserved for something, then charged, refunded, or charged and taken back."""
    memo = b"" if number % 3 else (b"large" if number % 2 else b"x") * (1_000 if number % 2 else 3)
    made = Reserve(some_id(number), ALICE, Amount(number), memo)
    height = Height(number)
    if number % 4 == 0:
        return [made, Charge(some_id(number), height, BOB, Amount(number // 2))]
    if number % 4 == 1:
        return [made, Refund(some_id(number), height)]
    if number % 4 == 2:
        return [made, Charge(some_id(number), height, BOB, Amount(1)), RollBack(Height(number - 1))]
    return [made]


def engine_on(folder: Path) -> Engine:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tables = SqliteTables(folder)
    return Engine(journal_of(folder), tables, Folder(folder / "snapshots"), SimulatedClock(), DEVELOPMENT)


def journal_of(folder: Path) -> LongJournal:
    return LongJournal(SqliteJournal(folder), Folder(folder / "archive"))


async def judge(folder: Path) -> Verdict:
    """Check first, which changes nothing; then start as a node would, up to where it would write."""
    journal, tables, snapshots = journal_of(folder), SqliteTables(folder), Folder(folder / "snapshots")
    try:
        findings = await checked(journal, tables, snapshots)
        try:
            await journal.own()
            found = await recover(journal, tables, snapshots, DEVELOPMENT)
            return Verdict(digest(found.state), "", findings)
        except (Corrupt, Unavailable) as fault:
            return Verdict(None, str(fault), findings)
    finally:
        await tables.close()
        await journal.close()


async def checked(journal: LongJournal, tables: SqliteTables, snapshots: Folder) -> list[Finding]:
    try:
        return await check(journal, tables, snapshots, DEVELOPMENT)
    except (Corrupt, Unavailable) as fault:
        return [Finding("store", False, str(fault))]


async def seen(folder: Path) -> Seen:
    """Every batch, payload, row and claim."""
    journal, tables = journal_of(folder), SqliteTables(folder)
    try:
        entries = [entry async for entry in journal.entries(BatchNo(0))]
        rows = [(table, row) async for _, table, lines in tables.dump() for row in lines]
        return Seen(entries, sorted(rows, key=repr))
    finally:
        await tables.close()
        await journal.close()


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def run(folder: Path) -> Verdict:
    return asyncio.run(judge(folder))
