"""What a fold changed becomes rows of every store: a record that is gone leaves its table, whichever table that is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec import inspect
from tests.simulation.world import DEVELOPMENT
from tests.storage.stores import TABLES as STORES
from tests.storage.stores import Place

from holdfast.adapters.sql.table_schema import PERMANENT
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, EventNo
from holdfast.core.state import State
from holdfast.core.tables import TABLES
from holdfast.engine.projection.changed_rows import take_rows
from holdfast.ports import Row, TableWriter

DELETABLE = sorted(TABLES.keys() - PERMANENT)
WRITTEN, DELETED = (JournalHead(BatchNo(number), last=EventNo(10 * number)) for number in (1, 2))
pytestmark = pytest.mark.rule("ENG-004")


@pytest.fixture(params=sorted(STORES))
async def tables(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[TableWriter]:
    opened = STORES[request.param](place)()
    await opened.open()
    yield opened
    await opened.close()


def value(of: inspect.Type, number: int) -> object:
    match of:
        case inspect.IntType():
            return number
        case inspect.StrType():
            return str(number)
        case inspect.BytesType():
            return number.to_bytes(32, "big")
        case inspect.EnumType():
            return next(iter(of.cls))
        case inspect.UnionType():
            return None
    raise AssertionError(f"no value of {of}")


def row(table: str, number: int) -> Row:
    """A row whose numbers, texts and bytes are those of no other number."""
    columns = [value(inspect.type_info(field.type), number) for field in msgspec.structs.fields(TABLES[table].record)]
    return (*columns, *(None for _ in TABLES[table].packed))


async def stored_keys(tables: TableWriter, table: str) -> list[object]:
    before_all = {int: 0, str: "", bytes: b""}[type(row(table, 1)[0])]
    rows, _ = await tables.page(table, {}, before_all, 10)
    return [key for key, *_ in rows]


async def test_a_record_that_is_gone_leaves_its_table_and_its_neighbours_stay(tables: TableWriter) -> None:
    rows = {table: [row(table, number) for number in (1, 2, 3)] for table in DELETABLE}
    await tables.write(rows, [], WRITTEN)
    state = State(DEVELOPMENT)
    for table, (_, gone, _) in rows.items():
        state.touched[table][gone[0]] = None
    changed, claims = take_rows(state)
    await tables.write(changed, claims, DELETED, after=WRITTEN)
    assert {table: await stored_keys(tables, table) for table in rows} == {
        table: [first[0], last[0]] for table, (first, _, last) in rows.items()
    }
    assert await tables.checkpoint() == DELETED
    assert take_rows(state) == ({}, [])  # each deletion is written once
