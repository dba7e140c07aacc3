"""PostgreSQL fails under the writer of the tables: a write is complete or absent, done once, by one writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.counts import counts
from tests.postgres.server import Address, Server
from tests.storage.postgres_backends import kill, until
from tests.storage.stores import PATIENCE_S, impatient
from tests.storage.test_tables import account, at

from holdfast.adapters.postgres.connect import Connection
from holdfast.adapters.postgres.tables import PostgresTables
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.event import JournalHead
from holdfast.core.base.values import EventNo
from holdfast.core.index.unique_ids import Claim

CLAIM = [(b"h1", Claim(EventNo(1), 1))]


@pytest.fixture
def address(postgres: Server) -> Address:
    return postgres.address()


@pytest.fixture
async def tables(address: Address) -> AsyncIterator[PostgresTables]:
    opened = PostgresTables(*address, lock_wait_s=PATIENCE_S)
    await opened.open()
    yield opened
    await opened.close()


async def sorted_run_sizes(admin: Any, schema: str) -> list[int]:
    return [row[0] for row in await admin.fetch(f"SELECT size FROM {schema}.sorted_run")]


@pytest.mark.rule("ENG-004", "ENG-005")
async def test_a_write_that_landed_unknown_is_not_done_twice(
    tables: PostgresTables, address: Address, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = tables._write_transaction

    async def cut_off(work: Callable[[Connection], Awaitable[None]]) -> None:
        await really(work)
        assert tables._writer is not None
        tables._writer.terminate()
        raise Unavailable("ENG-002", "the answer was lost")

    monkeypatch.setattr(tables, "_write_transaction", cut_off)
    with pytest.raises(Unavailable, match="the answer was lost"):
        await tables.write({"account": [account("alice", 1)]}, CLAIM, at(1), after=JournalHead())
    monkeypatch.undo()
    with pytest.raises(Unavailable, match="the tables are at batch 1"):
        await tables.write({"account": [account("alice", 1)]}, CLAIM, at(1), after=JournalHead())
    assert await tables.open() == at(1), "whoever asks learns that it was written"
    assert await sorted_run_sizes(admin, address.schema) == [1]
    await tables.write({"account": [account("alice", 2)]}, [(b"h2", Claim(EventNo(2), 1))], at(2), after=at(1))
    assert await sorted_run_sizes(admin, address.schema) == [1, 1]
    assert await tables.open() == at(2)


async def is_written(
    tables: PostgresTables, rows: Any, claims: Any, checkpoint: JournalHead, after: JournalHead
) -> bool:
    """What the projector does until it succeeds."""
    try:
        if await tables.open() != checkpoint:
            await tables.write(rows, claims, checkpoint, after)
    except Unavailable:
        return False
    return True


@pytest.mark.rule("ENG-004")
async def test_a_backend_killed_in_the_middle_of_a_write_leaves_all_or_nothing(
    tables: PostgresTables, address: Address, admin: Any
) -> None:
    random = Random(5)
    for n in range(1, counts(10, 100) + 1):
        assert tables._writer is not None
        pid = tables._writer.get_server_pid()
        rows = {"account": [account(f"a{i}", n) for i in range(500)]}
        claims = [(b"%d-%d" % (n, i), Claim(EventNo(n), i)) for i in range(500)]
        writing = asyncio.create_task(tables.write(rows, claims, at(n), at(n - 1) if n > 1 else JournalHead()))
        await asyncio.sleep(random.random() / 50)
        await admin.execute("SELECT pg_terminate_backend($1)", pid)
        (fault,) = await asyncio.gather(writing, return_exceptions=True)
        page, as_of = await tables.page("account", {}, "", 500)
        assert {row[1] for row in page} == ({as_of} if as_of else set())
        assert as_of in ((n - 1, n) if fault else (n,))
        await until(partial(is_written, tables, rows, claims, at(n), at(n - 1) if n > 1 else JournalHead()))
        assert sum(await sorted_run_sizes(admin, address.schema)) == 500 * n


async def is_cut(tables: PostgresTables) -> bool:
    """And knows it."""
    return tables._writer is not None and bool(tables._writer.is_closed())


@pytest.mark.rule("ENG-004")
async def test_a_writer_that_was_replaced_cannot_put_old_rows_over_new_ones(
    tables: PostgresTables, address: Address, admin: Any
) -> None:
    await tables.write({"account": [account("alice", 1)]}, [], at(1))
    early, successor = impatient(PostgresTables(*address)), PostgresTables(*address)
    with pytest.raises(Unavailable, match="owns the tables"):
        await early.open()
    assert await early.checkpoint() == at(1), "whoever only looks needs no lock"
    await early.close()
    await kill(admin, address.schema, "tables")
    await until(partial(is_cut, tables))
    assert await successor.open() == at(1)
    await successor.write({"account": [account("alice", 3)]}, [], at(3))
    with pytest.raises(Unavailable, match="owns the tables"):
        await impatient(tables).write({"account": [account("alice", 2)]}, [], at(2), after=at(1))
    await successor.close()
    tables._lock_wait_s = PATIENCE_S
    with pytest.raises(Unavailable, match="the tables are at batch 3, not 1"):
        await tables.write({"account": [account("alice", 2)]}, [], at(2), after=at(1))
    assert await tables.page("account", {}, "", 9) == ([account("alice", 3)], 3)


@pytest.mark.rule("ENG-004")
async def test_a_projection_that_is_stopped_in_the_middle_can_be_opened_again(
    tables: PostgresTables, address: Address
) -> None:
    for n in range(1, 11):
        rows = {"account": [account(f"a{i}", n) for i in range(2_000)]}
        writing = asyncio.create_task(tables.write(rows, [], at(n)))
        await asyncio.sleep(n / 1000)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        found = await tables.open()
        page, as_of = await tables.page("account", {}, "", 2_000)
        assert found.last == as_of
        assert {row[1] for row in page} == ({as_of} if as_of else set())
