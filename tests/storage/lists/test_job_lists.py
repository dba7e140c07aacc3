"""Lists of jobs by any filters, on every store: merged from an index, they are the list (SEC-002)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain, combinations, product

import asyncpg
import pytest
from tests.storage.stores import TABLES, Place

from holdfast.adapters.sql.table_schema import COLUMNS, page_statement
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import BatchNo, Digest, EventNo, Kind, Term
from holdfast.core.job.model import JobState
from holdfast.engine.queries.records import EVENT_MAX
from holdfast.ports import Row, TableWriter

pytestmark = pytest.mark.rule("SEC-002")
TEXTS = {"tier", "proof", "reason"}
BYTES = {"id", "tx_hash", "request_hash", "spec_digest", "requirements", "parent", "input_digest"}
NULLS = {"relative_expires_ms", "charged", "payee", "settled_height", "ended_ms", "leases"}
CHOSEN = {"caller": "a", "state": "QUEUED", "kind": "AI"}
CHOICES = list(chain.from_iterable(combinations(CHOSEN, count) for count in range(len(CHOSEN) + 1)))


@pytest.fixture(params=sorted(TABLES))
async def tables(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[TableWriter]:
    opened = TABLES[request.param](place)()
    await opened.open()
    yield opened
    await opened.close()


def job_row(event: int, caller: str, state: str, kind: str) -> Row:
    """Only what lists are filtered by differs."""
    known = {"event": event, "caller": caller, "state": str(state), "kind": str(kind)}
    known |= dict.fromkeys(TEXTS, "") | dict.fromkeys(BYTES, b"") | dict.fromkeys(NULLS)
    return tuple(known.get(name, 0) for name in COLUMNS["job"])


async def test_a_list_by_any_filters_in_both_orders_is_the_list_page_by_page(tables: TableWriter) -> None:
    every = [*product("ab", JobState, Kind), *[("a", JobState.QUEUED, Kind.AI)] * 4]
    rows = [job_row(event, *each) for event, each in enumerate(every, start=1)]
    head = JournalHead(BatchNo(1), Term(1), EventNo(len(rows)), 1, Digest(bytes(32)))
    await tables.write({"job": rows}, [], head)
    columns = COLUMNS["job"]
    for chosen, is_newest_first in product(CHOICES, (False, True)):
        match = {name: CHOSEN[name] for name in chosen}
        listed = [row for row in rows if all(row[columns.index(name)] == value for name, value in match.items())]
        read, after = list[Row](), EVENT_MAX if is_newest_first else 0
        while page := (await tables.page("job", match, after, 3, is_newest_first=is_newest_first))[0]:
            read += page
            after = page[-1][0]  # type: ignore[assignment]  # its event
        assert read == (listed[::-1] if is_newest_first else listed), (chosen, is_newest_first)


async def test_postgresql_reads_every_list_in_order_and_sorts_nothing(place: Place) -> None:
    """Which index it takes is its own choice, by how often each value occurs."""
    opened = TABLES["postgres"](place)()
    await opened.open()
    try:
        rows = [job_row(event, *each) for event, each in enumerate([*product("ab", JobState, Kind)] * 200, start=1)]
        head = JournalHead(BatchNo(1), Term(1), EventNo(len(rows)), 1, Digest(bytes(32)))
        await opened.write({"job": rows}, [], head)
        connection = await asyncpg.connect(place.address.dsn)
        try:
            await connection.execute(f'SET search_path TO "{place.address.schema}"')
            await connection.execute("ANALYZE job")
            for chosen, is_newest_first in product(CHOICES[1:], (False, True)):
                plan = await plan_of(connection, chosen, is_newest_first)
                assert "Sort" not in plan.replace("Sort Key", ""), (chosen, plan)
                assert "Seq Scan" not in plan, (chosen, plan)
                assert "Index Scan" in plan, (chosen, plan)
        finally:
            await connection.close()
    finally:
        await opened.close()


async def plan_of(connection: asyncpg.Connection, chosen: tuple[str, ...], is_newest_first: bool) -> str:
    sql = page_statement("job", chosen, "$", is_newest_first=is_newest_first, are_parts_limited=True)
    after = EVENT_MAX if is_newest_first else 0
    rows = await connection.fetch(f"EXPLAIN {sql}", after, 10, *(CHOSEN[name] for name in chosen))
    return "\n".join(row[0] for row in rows)
