"""Rows of blobs are for ever: no store has a statement that deletes one (BLB-002)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.adapters.sql.table_schema import PERMANENT, delete_statement
from holdfast.adapters.sqlite.tables import SqliteTables
from holdfast.core.base.errors import Corrupt
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo
from holdfast.ports import row_deleted


@pytest.mark.rule("BLB-002")
@pytest.mark.parametrize("table", sorted(PERMANENT))
async def test_no_statement_deletes_a_row_of_a_blob(table: str, tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match="BLB-002"):
        delete_statement(table, "= ?")
    tables = SqliteTables(tmp_path)
    await tables.open()
    try:
        with pytest.raises(Corrupt, match="BLB-002"):
            await tables.write({table: [row_deleted(1)]}, [], JournalHead(BatchNo(1)))
        assert (await tables.checkpoint()).number == 0
    finally:
        await tables.close()


@pytest.mark.rule("BLB-002")
def test_the_sources_have_no_other_way_to_delete_one() -> None:
    source = Path(__file__).parents[3] / "src" / "holdfast"
    texts = [path.read_text("utf-8") for path in source.rglob("*.py")] + [
        path.read_text("utf-8") for path in source.rglob("*.sql")
    ]
    assert not any(f"DELETE FROM {table}" in text for text in texts for table in PERMANENT)
    assert not any(
        f'touched["{table}"]' in line and "None" in line
        for text in texts
        for table in PERMANENT
        for line in text.splitlines()
    )
