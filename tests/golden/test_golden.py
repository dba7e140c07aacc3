"""Journals of every released version still fold to the state they had then, are imported, and pass every check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from tests.golden.make import HERE, make
from tests.simulated.journal import Disk, SimulatedJournal
from tests.simulated.tables import SimulatedTables
from tests.simulated.world import DEVELOPMENT, SimulatedFiles

from holdfast.adapters.files import Folder
from holdfast.core import law
from holdfast.core.event import Tip
from holdfast.core.state import State, digest
from holdfast.core.values import BatchNo
from holdfast.engine.chapters import Book
from holdfast.engine.check import check
from holdfast.engine.longjournal import LongJournal
from holdfast.engine.recover import recover
from holdfast.engine.transfer import Manifest, import_, read_manifest

KNOWN: Final = {
    "v0.1.0": "07665c9d81ca43582a842beed0d940c57d6dd6133ad7f27262b044f4b26aa730",
    "v0.2.0": "355f495cc7ec10c13fa1d3445b6b3457b775606376bffc8a9854e1b299281cb3",
    "v0.3.0": "0a4b6d48a8cab6bdcd68c4bec64b1108d0b2f3ca84b0fb49e3e55123b0fca94f",
}
"""The state of each golden journal, written down here when it was made."""
BYTES_MAX: Final = 60_000


def version(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.name.removeprefix("v").split(".")))


ALL: Final = sorted((path for path in HERE.iterdir() if re.fullmatch(r"v[\d.]+", path.name)), key=version)


def test_each_golden_journal_is_known_and_small() -> None:
    assert [path.name for path in ALL] == list(KNOWN)
    for path in ALL:
        assert sum(file.stat().st_size for file in path.iterdir()) < BYTES_MAX


@pytest.mark.rule("ENG-003", "CAN-005")
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
async def test_it_folds_to_the_state_it_had_then(path: Path) -> None:
    state, tip = State(DEVELOPMENT), Tip()
    async for batch in Book(Folder(path)).read(BatchNo(0)):
        tip = law.fold(state, tip, (batch,))
    manifest = await read_manifest(Folder(path))
    assert isinstance(manifest, Manifest)
    assert manifest.is_of(tip, digest(state))
    assert digest(state).hex() == KNOWN[path.name]


@pytest.mark.rule("ENG-003", "ENG-004", "ENG-005", "ENG-007")
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
async def test_it_is_imported_and_passes_every_check(path: Path) -> None:
    journal, tables, files = (
        LongJournal(SimulatedJournal(Disk()), SimulatedFiles()),
        SimulatedTables(),
        SimulatedFiles(),
    )
    manifest = await import_(Folder(path), journal, DEVELOPMENT)
    assert isinstance(manifest, Manifest)
    found = await recover(journal, tables, files, DEVELOPMENT)
    assert digest(found.state).hex() == KNOWN[path.name]
    findings = await check(journal, tables, files, DEVELOPMENT)
    assert [finding for finding in findings if not finding.is_good] == []


async def test_the_newest_holds_every_kind_of_event_a_payload_and_several_epochs() -> None:
    entries = [entry async for entry in Book(Folder(ALL[-1])).entries(BatchNo(0))]
    kinds = {type(event) for entry in entries for event in law.unpack(entry.batch)}
    assert kinds == set(law.EVENTS), "a new kind of event needs a new golden journal: see make.py"
    assert any(entry.attachments for entry in entries)
    assert len({entry.batch.epoch for entry in entries}) > 2
    assert len(await Book(Folder(ALL[-1])).names()) > 1


async def test_making_one_is_repeatable() -> None:
    one, two = SimulatedFiles(), SimulatedFiles()
    assert await make(one) == await make(two)
    assert one.files == two.files
