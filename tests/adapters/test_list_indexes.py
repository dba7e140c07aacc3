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
    for table, indexes in INDEXED.items()
    for names in [sorted({name for index in indexes for name in index})]
    for count in range(1, len(names) + 1)
    for chosen in combinations(names, count)
]
"""Every choice of filters that a client can make."""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> apsw.Connection:
    made = connect(tmp_path_factory.mktemp("tables") / "tables.db", "NORMAL")
    migrate(made, "tables")
    return made


def plan_of(db: apsw.Connection, sql: str, filters: int) -> list[str]:
    """The searches of a plan, and what it merges or sorts."""
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", [9, 10, *range(filters)])]


def is_in_order(step: str, table: str) -> bool:
    """Whether a step reads from an index of which every column has a value, from a key on."""
    indexes = [f"{table}_by_{index[0]} ({' AND '.join(f'{name}=?' for name in index)}" for index in INDEXED[table]]
    beyond = (" AND event>?)", " AND event<?)", " AND event>? AND event<?)")
    return step in {f"SEARCH {table} USING INDEX {index}{key}" for index in indexes for key in beyond}


@pytest.mark.rule("SEC-002")
@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize(("table", "filters"), FILTERS)
def test_a_list_by_any_filters_is_read_from_an_index_in_its_order(
    db: apsw.Connection, table: str, filters: tuple[str, ...], is_newest_first: bool
) -> None:
    """No row that the list does not show is read, and nothing is sorted."""
    named = (*filters, "parent", "height>=", "event>=") if table == "job" else filters
    plan = plan_of(db, page_sql(table, named, is_newest_first=is_newest_first), len(named))
    searches = [step for step in plan if step.startswith(("SEARCH", "SCAN"))]
    assert searches
    assert [step for step in searches if not is_in_order(step, table)] == []
    assert [step for step in plan if "B-TREE" in step] == []
    assert set(plan) - set(searches) <= {"MERGE (UNION ALL)", "LEFT", "RIGHT"}


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
