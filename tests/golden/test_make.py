"""The run of `make` covers every kind of event, is repeatable, and its export is imported and passes every check."""

from __future__ import annotations

import pytest
from tests.golden.make import make
from tests.simulation.journal import Disk, SimulatedJournal
from tests.simulation.tables import SimulatedTables
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.core import journal_codec, state_machine
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.recover import recover
from holdfast.history.archive_segments import SegmentFolder
from holdfast.history.check import check
from holdfast.history.export_import import ExportManifest, import_journal
from holdfast.history.full_journal import FullJournal


async def test_it_holds_every_kind_of_event_a_payload_and_several_terms() -> None:
    files = SimulatedFiles()
    await make(files)
    entries = [entry async for entry in SegmentFolder(files).entries(BatchNo(0))]
    kinds = {type(event) for entry in entries for event in journal_codec.unpack(entry.batch)}
    assert kinds == set(state_machine.EVENTS), "a new kind of event belongs into NewestOwner"
    assert any(entry.attachments for entry in entries)
    assert len({entry.batch.term for entry in entries}) > 2
    assert len(await SegmentFolder(files).names()) > 1


async def test_making_it_is_repeatable() -> None:
    one, two = SimulatedFiles(), SimulatedFiles()
    assert await make(one) == await make(two)
    assert one.files == two.files


@pytest.mark.rule("ENG-003", "ENG-004", "ENG-005", "ENG-007")
async def test_its_export_folds_as_the_manifest_says_is_imported_and_passes_every_check() -> None:
    export, files, tables = SimulatedFiles(), SimulatedFiles(), SimulatedTables()
    manifest = await make(export)
    state, head = State(DEVELOPMENT), JournalHead()
    async for batch in SegmentFolder(export).read(BatchNo(0)):
        head = journal_codec.fold(state, head, (batch,))
    assert manifest.matches(head, digest(state))
    journal = FullJournal(SimulatedJournal(Disk()), SimulatedFiles())
    assert isinstance(await import_journal(export, journal, DEVELOPMENT), ExportManifest)
    recovered = await recover(journal, tables, files, DEVELOPMENT)
    assert digest(recovered.state) == digest(state)
    results = await check(journal, tables, files, DEVELOPMENT)
    assert [result for result in results if not result.is_good] == []
