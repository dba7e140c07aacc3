"""Data of format 1 are read for ever: golden files of a journal, a snapshot and its tables (CAN-005).

What the golden files do not know, columns and parts that came later, is not compared.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any, Final

import pytest
from tests.golden.make_format_1 import JOURNAL, PINNED, SNAPSHOT, columns_of, dump_rows, rows_digest
from tests.simulation.world import DEVELOPMENT, SimulatedFiles

from holdfast.adapters.sqlite.journal import SqliteJournal
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core import journal_codec
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.core.state import State
from holdfast.core.state_digest import digest
from holdfast.engine.recover import rebuild_tables
from holdfast.engine.snapshots import snapshot_files
from holdfast.engine.snapshots.state_snapshot import restore
from holdfast.history.check import check
from holdfast.history.full_journal import FullJournal

pytestmark = pytest.mark.rule("CAN-005", "ENG-003")
GOLDEN: Final[dict[str, Any]] = json.loads(PINNED.read_text())
BYTES_MAX: Final = 100_000


@pytest.fixture
async def journal(tmp_path: Path) -> Any:
    (tmp_path / "journal.db").write_bytes(lzma.decompress(JOURNAL.read_bytes()))
    opened = SqliteJournal(tmp_path)
    yield opened
    await opened.close()


async def test_its_journal_folds_to_its_state(journal: SqliteJournal) -> None:
    state, head = State(DEVELOPMENT), JournalHead()
    async for batch in journal.read(BatchNo(0)):
        head = journal_codec.fold(state, head, (batch,))
    assert (head.number, head.last, digest(state).hex()) == (GOLDEN["batches"], GOLDEN["events"], GOLDEN["digest"])


async def test_its_snapshot_and_the_rest_of_its_journal_fold_to_its_state(journal: SqliteJournal) -> None:
    state, head = restore(lzma.decompress(SNAPSHOT.read_bytes()), DEVELOPMENT)
    assert head.number == GOLDEN["batches"] // 2
    async for batch in journal.read(head.number):
        head = journal_codec.fold(state, head, (batch,))
    assert digest(state).hex() == GOLDEN["digest"]


async def test_its_tables_hold_what_they_held_and_a_check_finds_no_fault(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    full, tables, files = FullJournal(journal, SimulatedFiles()), SqliteTables(tmp_path), SimulatedFiles()
    raw = lzma.decompress(SNAPSHOT.read_bytes())
    files.files[snapshot_files.file_name(restore(raw, DEVELOPMENT)[1])] = raw
    await rebuild_tables(full, tables, SimulatedFiles(), DEVELOPMENT, is_dropped=True)
    found = await dump_rows(tables)
    for table, pinned in GOLDEN["tables"].items():
        places = [columns_of(table).index(name) for name in pinned["columns"].split()]
        assert (len(found[table]), rows_digest(found[table], places)) == (pinned["rows"], pinned["sha256"]), table
    results = await check(full, tables, files, DEVELOPMENT)
    assert [result for result in results if not result.is_good] == []
    await tables.close()


def test_the_golden_files_are_small() -> None:
    assert sum(path.stat().st_size for path in (JOURNAL, SNAPSHOT, PINNED)) <= BYTES_MAX
