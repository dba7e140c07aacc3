"""Lists that clients filter are served by an index: no request reads a whole table (SEC-002)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.adapters.sql.table_schema import INDEXED
from holdfast.adapters.sqlite.connect import connect, migrate
from holdfast.adapters.sqlite.tables import SqliteTables, page_sql
from holdfast.core.tables import TABLES

FILTERS = [
    (table, chosen)
    for table, names in INDEXED.items()
    for count in range(1, len(names) + 1)
    for chosen in combinations(names, count)
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    made = connect(tmp_path_factory.mktemp("tables") / "tables.db", "NORMAL")
    migrate(made, "tables")
    return made


@pytest.mark.rule("SEC-002")
@pytest.mark.parametrize(("table", "filters"), FILTERS)
def test_a_list_by_any_filter_is_read_from_the_index_of_the_narrowest(
    db: apsw.Connection, table: str, filters: tuple[str, ...]
) -> None:
    sql = page_sql(table, (*filters, "parent") if table == "job" else filters)
    bound = [0, *filters, *([b""] if table == "job" else []), 10]
    (plan,) = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bound)]
    assert plan.startswith(f"SEARCH {table} USING INDEX {table}_by_{filters[0]} ({filters[0]}=? AND event>?)")


@pytest.mark.rule("SEC-002")
def test_a_list_from_the_newest_down_to_a_height_reads_none_below_it(db: apsw.Connection) -> None:
    sql = page_sql("job", ("state", "height>=", "event>="), is_newest_first=True)
    (plan,) = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", [9, "FAILED", 2, 5, 10])]
    assert plan.startswith("SEARCH job USING INDEX job_by_state (state=? AND event>? AND event<?)")


@pytest.mark.rule("SEC-002")
def test_the_log_of_a_job_is_read_from_its_index(db: apsw.Connection) -> None:
    (plan,) = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {page_sql('work_log', ('task_id',))}", [0, b"", 10])]
    assert plan.startswith("SEARCH work_log USING INDEX work_log_by_task_id (task_id=? AND place>?)")


@pytest.mark.rule("SEC-002")
async def test_a_row_is_read_by_another_connection_than_a_list(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path)
    await tables.open()
    try:
        await tables.page("job", {}, 0, 1)
        await tables.get("job", 1)
        assert len(tables._read_dbs) == 2
    finally:
        await tables.close()


@pytest.mark.rule("ENG-004")
def test_no_column_is_a_truth_value() -> None:
    """A store has 0 and 1 for it, which a record of a truth value would not accept back: such fields are integers."""
    flags = [
        f"{name}.{field.name}"
        for name, table in TABLES.items()
        for field in msgspec.structs.fields(table.record)
        if field.type is bool
    ]
    assert flags == []
